//! The log filter of a running server follows its settings file.

use crate::support::{Folder, Server};

#[test]
fn the_log_filter_follows_the_settings_file() {
    let folder = Folder::new();
    let config = folder.write("podium.toml", "log = \"info\"\n");
    let data = folder.path("data");
    let pool = std::path::Path::new("demo");
    let server =
        Server::start_bounded(&data, pool, "direct:sim-arithmetic", &["--config", config.to_str().unwrap()]);
    let same = server.signal("HUP", "the log filter is unchanged");
    assert!(same.contains("SIGHUP"), "{same}");
    folder.write("podium.toml", "log = \"infoo\"\n");
    let refused = server.signal("HUP", "the settings are invalid");
    assert!(refused.contains("infoo") && refused.contains("WARN"), "{refused}");
    // Without a signal, as a new ConfigMap arrives: the file becomes a link to another one.
    let other = folder.write("other.toml", "log = \"info,podium_engine=debug\"\n");
    let link = folder.path("link");
    std::os::unix::fs::symlink(&other, &link).unwrap();
    std::fs::rename(&link, &config).unwrap();
    let changed = server.logged("the log filter changed");
    assert!(changed.contains("podium_engine=debug"), "{changed}");
    let (status, _) = server.terminate();
    assert!(status.success(), "a hangup does not end the server");
}
