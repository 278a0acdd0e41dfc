//! The version of the programs.

/// The version of all programs, with the commit that they were built from if the build knew it: `0.1.0+1a2b3c4d5e6f`.
///
/// The commit is that of the variable `PODIUM_COMMIT` at build time. Release builds in a checkout ask git if it is not set.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), env!("PODIUM_BUILD"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_that_of_the_package_with_at_most_a_commit() {
        let build = VERSION.strip_prefix(env!("CARGO_PKG_VERSION")).unwrap();
        let is_commit =
            |commit: &str| commit.len() == 12 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(build.is_empty() || build.strip_prefix('+').is_some_and(is_commit), "{VERSION}");
    }
}
