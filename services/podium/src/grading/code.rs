//! Runs Python code of an answer in a process of its own with limits.
//!
//! The limits are those of `setrlimit`, which the process sets before it runs the code and cannot raise again: processor time, memory,
//! file sizes, open files, and no further processes (of root: with the same limits each). It gets an empty folder, an empty environment
//! and, where the kernel allows user namespaces, no network, and its processes end with it. **It can read every file that this user
//! can read**, and code that searches for the checker inside its own process can forge a verdict: run untrusted models in a container.

use std::io;
use std::process::Stdio;
use std::sync::Once;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

use super::GradeError;
use crate::terminal;

/// Sets the limits, then runs the code. Written for Python 3.8 and newer.
const DRIVER: &str = include_str!("driver.py");
/// Most bytes of output that are read.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;
/// Seconds that a process may take for each second of processor time.
const WALL_FACTOR: u32 = 2;
/// Longest time for Python to start and to stop.
const START_MAX: Duration = Duration::from_secs(10);

/// An input of a program, and the output that it must have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StdinTest {
    stdin: String,
    stdout: String,
}

/// The bounds of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CodeLimits {
    /// Seconds of processor time, 1 to 300.
    cpu_s: u32,
    /// Mebibytes of memory, 64 to 65,536.
    memory_mib: u32,
}

impl Default for CodeLimits {
    fn default() -> Self {
        Self { cpu_s: 10, memory_mib: 1024 }
    }
}

impl CodeLimits {
    pub(super) fn check(self) -> Result<(), String> {
        for (field, value, min, max) in
            [("cpu_s", self.cpu_s, 1, 300), ("memory_mib", self.memory_mib, 64, 65_536)]
        {
            if !(min..=max).contains(&value) {
                return Err(format!("grader.limits.{field} is {value}, it must be {min} to {max}"));
            }
        }
        Ok(())
    }

    const fn wall_s(self) -> u32 {
        WALL_FACTOR * self.cpu_s
    }
}

/// The task of the process, as it reads it from its standard input.
#[derive(Serialize)]
struct Job<'a> {
    code: &'a str,
    /// Statements to run after the code; none for a program that reads its standard input.
    tests: Option<&'a str>,
    stdin: &'a str,
    /// The process writes it after the tests have passed.
    nonce: &'a str,
    cpu_s: u32,
    wall_s: u32,
    memory_mib: u32,
}

/// The code of an answer: its last fenced block, or all of it.
pub(super) fn code_of(answer: &str) -> &str {
    let Some(end) = answer.rfind("```") else { return answer };
    let Some(begin) = answer[..end].rfind("```") else { return answer };
    let block = &answer[begin + 3..end];
    // The first line names the language.
    block.split_once('\n').map_or(block, |(_, code)| code)
}

/// Whether the code passes all tests: those with an input, or else `tests`, which are statements.
pub(super) async fn passes(
    code: &str,
    tests: &str,
    stdin_tests: &[StdinTest],
    limits: &CodeLimits,
) -> Result<bool, GradeError> {
    let nonce = format!("{:032x}", rand::random::<u128>());
    let job = |tests, stdin| Job {
        code,
        tests,
        stdin,
        nonce: &nonce,
        cpu_s: limits.cpu_s,
        wall_s: limits.wall_s(),
        memory_mib: limits.memory_mib,
    };
    if stdin_tests.is_empty() {
        let output = output(&job(Some(tests), "")).await.map_err(GradeError::Sandbox)?;
        return Ok(output.as_deref() == Some(&nonce));
    }
    for test in stdin_tests {
        let output = output(&job(None, &test.stdin)).await.map_err(GradeError::Sandbox)?;
        if !output.is_some_and(|output| lines(&output).eq(lines(&test.stdout))) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Lines without blanks at their ends, and without blank lines at the end of the text.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.trim_end().lines().map(str::trim_end)
}

/// The standard output of a process that ended by itself with success; `None` otherwise.
async fn output(job: &Job<'_>) -> io::Result<Option<String>> {
    let folder = tempfile::Builder::new().prefix("podium-code-").tempdir()?;
    let mut command = Command::new("python3");
    command.args(["-I", "-c", DRIVER]).current_dir(folder.path()).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", folder.path());
    // Libraries must not start threads, which the limits forbid.
    command.envs([("OPENBLAS_NUM_THREADS", "1"), ("OMP_NUM_THREADS", "1"), ("MKL_NUM_THREADS", "1")]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.process_group(0).kill_on_drop(true).spawn()?;
    let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let wall_max = START_MAX + Duration::from_secs(job.wall_s.into());
    let output = tokio::time::timeout(wall_max, talk(&mut child, job)).await;
    // The process was not waited for, so no other group can have its number.
    if let Some(group) = group {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let status = child.wait().await?;
    match output {
        Ok(output) => output.map(|output| status.success().then_some(output)),
        Err(_) => Ok(None),
    }
}

/// Gives the process its job and reads its output to the end.
async fn talk(child: &mut Child, job: &Job<'_>) -> io::Result<String> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(mut stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
        return Err(io::Error::other("the process has no pipes"));
    };
    let give = async {
        // A program that ends before it has read its input is no error here: its verdict is missing then.
        let _ = stdin.write_all(&serde_json::to_vec(job)?).await;
        drop(stdin);
        io::Result::Ok(())
    };
    let (mut output, mut notes) = (Vec::new(), Vec::new());
    let read = async {
        let (mut stdout, mut stderr) = (stdout.take(OUTPUT_BYTES_MAX), stderr.take(OUTPUT_BYTES_MAX));
        tokio::try_join!(stdout.read_to_end(&mut output), stderr.read_to_end(&mut notes))
    };
    tokio::try_join!(give, read)?;
    if notes.starts_with(b"network") {
        warn_of_network();
    }
    Ok(String::from_utf8_lossy(&output).into_owned())
}

fn warn_of_network() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        terminal::note("graded code can use the network: this system allows no user namespaces");
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: CodeLimits = CodeLimits { cpu_s: 2, memory_mib: 256 };

    /// Whether this system lets users make namespaces.
    fn has_namespaces() -> bool {
        let made = std::process::Command::new("unshare").args(["-Un", "true"]).status();
        made.is_ok_and(|status| status.success())
    }

    async fn passes_tests(code: &str, tests: &str) -> bool {
        passes(code, tests, &[], &LIMITS).await.unwrap()
    }

    #[test]
    fn the_last_block_of_an_answer_is_its_code() {
        let answer = "First:\n```python\nx = 1\n```\nBetter:\n```python\nx = 2\n```\nDone.";
        assert_eq!(code_of(answer), "x = 2\n");
        assert_eq!(code_of("x = 3"), "x = 3");
        assert_eq!(code_of("```x"), "```x");
    }

    #[tokio::test]
    async fn code_must_pass_its_tests() {
        let add = "def add(a, b):\n    return a + b\n";
        assert!(passes_tests(add, "assert add(1, 2) == 3").await);
        assert!(!passes_tests(add, "assert add(1, 2) == 4").await);
        assert!(!passes_tests("def add(a, b:", "assert True").await);
        let case = "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(add(1, 2), 3)\n";
        assert!(passes_tests(add, case).await);
        assert!(!passes_tests(add, &case.replace('3', "4")).await);
    }

    #[tokio::test]
    async fn code_that_ends_its_process_early_does_not_pass() {
        for code in ["import sys; sys.exit(0)", "import os; os._exit(0)", "print('passed')\nraise SystemExit"]
        {
            assert!(!passes_tests(code, "assert False").await, "{code}");
        }
    }

    #[tokio::test]
    async fn a_program_is_compared_by_its_output() {
        let test = |stdin: &str, stdout: &str| StdinTest { stdin: stdin.into(), stdout: stdout.into() };
        let code = "n = int(input())\nfor i in range(n):\n    print(i, end=' \\n')\n";
        let run = |tests: Vec<StdinTest>| async move { passes(code, "", &tests, &LIMITS).await.unwrap() };
        assert!(run(vec![test("2", "0\n1\n"), test("1\n", "0")]).await);
        assert!(!run(vec![test("2", "0\n1\n"), test("1", "1")]).await);
        assert!(!run(vec![test("x", "")]).await, "an error is no right output");
        let main = "import sys\nif __name__ == '__main__':\n    print(sys.stdin.read().upper())\n";
        assert!(passes(main, "", &[test("abc", "ABC")], &LIMITS).await.unwrap());
    }

    #[tokio::test]
    async fn a_process_keeps_to_its_limits() {
        for code in [
            "while True: pass",
            "x = bytearray(1 << 30)",
            "open('big', 'wb').write(bytes(64 << 20))",
            "import os; os.environ['USER']",
        ] {
            assert!(!passes_tests(code, "pass").await, "{code}");
        }
        assert!(
            passes_tests("import os; assert os.listdir('.') == []; open('small', 'w').write('x')", "pass")
                .await
        );
    }

    #[tokio::test]
    async fn code_cannot_reach_this_machines_network() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let code = format!("import socket\nsocket.create_connection(('127.0.0.1', {port}), timeout=1)");
        // Without user namespaces, the process has the network, as the documentation says.
        assert_eq!(passes_tests(&code, "pass").await, !has_namespaces());
    }

    #[tokio::test]
    async fn a_process_left_behind_is_killed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let code = format!(
            "import os, fcntl, time\nf = open({path:?}, 'w')\nfcntl.flock(f, fcntl.LOCK_EX)\n\
             if os.fork() == 0:\n    os.setsid()\n    time.sleep(600)\n    os._exit(0)\n"
        );
        let is_root = rustix::process::getuid().is_root();
        assert_eq!(passes_tests(&code, "pass").await, is_root, "only a process of root starts others");
        if has_namespaces() {
            std::fs::File::open(&path).unwrap().try_lock().unwrap();
        }
    }

    #[tokio::test]
    async fn a_process_that_only_waits_is_stopped() {
        let limits = CodeLimits { cpu_s: 1, ..LIMITS };
        let began = std::time::Instant::now();
        assert!(!passes("import time; time.sleep(60)", "pass", &[], &limits).await.unwrap());
        assert!(began.elapsed() < Duration::from_secs(30));
    }
}
