//! Ports that stay reserved while a server is down.

use std::fs::{File, TryLockError};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process;

use anyhow::{Context, Result, bail};

use crate::program::shared_folder;

/// Below the range of ports for outgoing connections, one of which could take the port of a server that is down.
const FIRST: u16 = 12_000;
const COUNT: u16 = 18_000;

/// A port of the loopback interface, reserved among tests for as long as this lives.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _lock: File,
}

impl Port {
    /// Reserves a port that has no listener and that no other test has.
    pub(crate) fn take() -> Result<Self> {
        let folder = shared_folder()?.join("ports");
        std::fs::create_dir_all(&folder).with_context(|| format!("making `{}`", folder.display()))?;
        // Concurrent tests begin their search far from each other.
        let start = process::id().wrapping_mul(61);
        for offset in 0..u32::from(COUNT) {
            let number = FIRST + u16::try_from(start.wrapping_add(offset) % u32::from(COUNT))?;
            let lock = File::create(folder.join(number.to_string())).context("making the lock of a port")?;
            match lock.try_lock() {
                Ok(()) if is_free(number) => return Ok(Self { number, _lock: lock }),
                Ok(()) | Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(e)) => return Err(e).context("locking a port"),
            }
        }
        bail!("none of {COUNT} ports from {FIRST} is free")
    }

    pub(crate) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.number).into()
    }

    pub(crate) fn number(&self) -> String {
        self.number.to_string()
    }
}

fn is_free(number: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok()
}
