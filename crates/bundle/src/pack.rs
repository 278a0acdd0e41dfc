//! Fills in a manifest's checksums and pool hash, in place or in a copy.
//!
//! A bundle is a folder and not an archive: planners open folders, weights are memory-mapped from them, and they hardly
//! compress. Users who need one file can archive the folder.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use podium_domain::pool::slots_hash;

use crate::manifest::is_plain_file_name;
use podium_domain::ids::WorkerId;
use podium_domain::pool::Pool;
use toml_edit::{DocumentMut, Item, TableLike, value};

use crate::{Bundle, BundleError, MANIFEST_FILE, checksum, read_manifest};

/// Fills in the checksums of all files that the manifest of `folder` names and, if a pool is given, the hash of its slots.
/// The rest of `conductor.toml`, including comments, is kept. If anything is invalid, nothing is written.
pub fn pack_in_place(folder: &Path, pool: Option<&Pool>) -> Result<Bundle, BundleError> {
    let before = read_manifest(folder)?;
    let (bundle, text) = filled_in(folder, &before, pool)?;
    if text != before {
        let unwritable = |path: &Path, source| BundleError::Unwritable { path: path.to_owned(), source };
        let (path, part) = (folder.join(MANIFEST_FILE), folder.join(".conductor.toml.part"));
        write_file(&part, text.as_bytes())?;
        fs::rename(&part, &path).map_err(|source| unwritable(&path, source))?;
    }
    Ok(bundle)
}

/// Like [`pack_in_place`], but in a new folder with the named files and those for people. Equal bundles give equal bytes.
/// The copy appears completely or not at all.
pub fn pack_copy(folder: &Path, to: &Path, pool: Option<&Pool>) -> Result<Bundle, BundleError> {
    if to.symlink_metadata().is_ok() {
        return Err(BundleError::Exists { path: to.to_owned() });
    }
    let (bundle, text) = filled_in(folder, &read_manifest(folder)?, pool)?;
    let part = part_of(to);
    let copied = write_copy(&bundle, &text, &part).and_then(|()| {
        fs::rename(&part, to).map_err(|source| BundleError::Unwritable { path: to.to_owned(), source })
    });
    if let Err(error) = copied {
        // Remove the partial copy. The first error is more useful than one of the removal.
        let _ = fs::remove_dir_all(&part);
        return Err(error);
    }
    Bundle::read(to)
}

fn part_of(to: &Path) -> PathBuf {
    let mut name = to.file_name().unwrap_or_default().to_owned();
    name.push(format!(".part-{}", std::process::id()));
    to.with_file_name(name)
}

fn write_copy(bundle: &Bundle, text: &str, part: &Path) -> Result<(), BundleError> {
    let unwritable = |path: &Path, source| BundleError::Unwritable { path: path.to_owned(), source };
    fs::create_dir(part).map_err(|source| unwritable(part, source))?;
    write_file(&part.join(MANIFEST_FILE), text.as_bytes())?;
    for named in bundle.manifest().files() {
        let sha256 = copy_file(&bundle.path(named.file), &part.join(named.file))?;
        if sha256 != named.sha256 {
            let problems = vec![format!("`{}` ({}) changed while it was copied", named.file, named.key)];
            return Err(BundleError::Files { folder: bundle.folder.clone(), problems });
        }
    }
    for name in bundle.for_people()? {
        copy_file(&bundle.path(&name), &part.join(&name))?;
    }
    Ok(())
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), BundleError> {
    let written = File::create(path).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(|source| BundleError::Unwritable { path: path.to_owned(), source })
}

fn copy_file(from: &Path, to: &Path) -> Result<String, BundleError> {
    let copied = File::create(to).and_then(|mut file| {
        let sha256 = checksum::copied(from, &mut file)?;
        file.sync_all()?;
        Ok(sha256)
    });
    copied.map_err(|source| BundleError::Unwritable { path: to.to_owned(), source })
}

/// The bundle with its checksums filled in, and its manifest as text.
fn filled_in(folder: &Path, before: &str, pool: Option<&Pool>) -> Result<(Bundle, String), BundleError> {
    // Invalid TOML is rejected by the manifest's own check, which explains the error.
    let Ok(mut manifest) = before.parse::<DocumentMut>() else {
        return Bundle::of(folder, before).map(|bundle| (bundle, before.to_owned()));
    };
    let mut problems = Vec::new();
    for (key, entry) in manifest.iter_mut() {
        for table in tables(entry) {
            fill_in_checksum(folder, &key, table, &mut problems);
        }
    }
    if let Some(pool) = pool {
        fill_in_pool(&mut manifest, pool, &mut problems);
    }
    if !problems.is_empty() {
        return Err(BundleError::Files { folder: folder.to_owned(), problems });
    }
    let text = manifest.to_string();
    let bundle = Bundle::of(folder, &text)?;
    let extra = bundle.extra_files()?;
    bundle.check_problems(extra).map(|bundle| (bundle, text))
}

/// The tables of a manifest entry.
fn tables(entry: &mut Item) -> Vec<&mut dyn TableLike> {
    match entry {
        Item::ArrayOfTables(tables) => tables.iter_mut().map(|table| table as &mut dyn TableLike).collect(),
        entry => entry.as_table_like_mut().into_iter().collect(),
    }
}

fn fill_in_checksum(folder: &Path, key: &str, table: &mut dyn TableLike, problems: &mut Vec<String>) {
    // A name with a path is rejected by the manifest's check; it is not followed here.
    let Some(file) = table.get("file").and_then(Item::as_str).filter(|file| is_plain_file_name(file)) else {
        return;
    };
    match checksum::of_file(&folder.join(file)) {
        Ok(sha256) => set(table, "sha256", &sha256),
        Err(error) => problems.push(format!("`{file}` ({key}) cannot be read: {error}")),
    }
}

fn fill_in_pool(manifest: &mut DocumentMut, pool: &Pool, problems: &mut Vec<String>) {
    let Some(pinned) = manifest.get_mut("pool").and_then(Item::as_table_like_mut) else {
        return problems
            .push("it has no [pool]: its prompt describes the workers, so no pool can be pinned".to_owned());
    };
    let slots = pinned.get("slots").and_then(Item::as_array).into_iter().flatten();
    let names: Vec<_> = slots.filter_map(|slot| slot.as_str()).collect();
    let ids: Vec<_> = names.iter().filter_map(|name| WorkerId::new(*name).ok()).collect();
    let missing = ids.iter().filter(|id| pool.worker(id).is_none());
    problems.extend(missing.map(|id| format!("pool {} has no worker `{id}` of pool.slots", pool.version())));
    if let Ok(hash) = slots_hash(pool, &ids) {
        set(pinned, "trained_on", &pool.version());
        set(pinned, "hash", &hash);
    }
}

/// Sets a value and keeps the surrounding formatting.
fn set(table: &mut dyn TableLike, key: &str, text: &str) {
    let around = table.get(key).and_then(Item::as_value).map(|old| old.decor().clone());
    let mut item = value(text);
    if let (Some(around), Some(new)) = (around, item.as_value_mut()) {
        *new.decor_mut() = around;
    }
    table.insert(key, item);
}
