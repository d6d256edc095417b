//! Opens a store by its location: a plain path, or a URL whose scheme selects the implementation.
//!
//! A location is a URL only if `://` follows a valid scheme, or is `file:/path`. Everything else is a path, colons
//! included.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{LocalStore, SftpStore, Store, StoreOptions, remote};
use crate::error::{Error, Result};

/// How the locations of one scheme are opened.
struct StoreScheme {
    /// Text before `://`, in lower case. Empty for plain paths.
    name: &'static str,
    /// A location of this scheme, for error texts.
    example: &'static str,
    /// Opens an existing store. Gets the text after `://`.
    open: OpenStore,
    /// Opens a store and creates it if it does not exist. Gets the text after `://`.
    create: OpenStore,
}

/// Gets the text after `://`.
type OpenStore = fn(&OsStr, &StoreOptions) -> Result<Arc<dyn Store>>;

/// Every kind of store that a location can name.
const SCHEMES: [StoreScheme; 6] = [
    StoreScheme {
        name: "",
        example: "a path",
        open: |path, _| open_local(Path::new(path)),
        create: |path, _| create_local(Path::new(path)),
    },
    StoreScheme {
        name: "file",
        example: "file:///absolute/path",
        open: |rest, _| open_local(&file_url_path(rest)?),
        create: |rest, _| create_local(&file_url_path(rest)?),
    },
    // A bucket exists before its store, and a prefix needs no creating.
    StoreScheme { name: "s3", example: "s3://bucket/prefix", open: remote::open_s3, create: remote::open_s3 },
    StoreScheme { name: "gs", example: "gs://bucket/prefix", open: remote::open_gcs, create: remote::open_gcs },
    StoreScheme { name: "az", example: "az://container/prefix", open: remote::open_azure, create: remote::open_azure },
    StoreScheme {
        name: "sftp",
        example: "sftp://user@host/path",
        open: |rest, options| Ok(Arc::new(SftpStore::open(rest, options)?)),
        create: |rest, options| Ok(Arc::new(SftpStore::create(rest, options)?)),
    },
];

/// Opens the store at `location`, a path or a URL, with default options.
///
/// # Errors
/// Errors of [`open_with`].
pub fn open(location: impl AsRef<OsStr>) -> Result<Arc<dyn Store>> {
    open_with(location, &StoreOptions::default())
}

/// Opens the store at `location`, a path or a URL.
///
/// # Errors
/// [`Error::NoRepository`] if it does not exist. [`Error::Usage`] if the scheme is unknown, or has no classes of
/// storage or no tags and some are given. [`Error::Io`].
pub fn open_with(location: impl AsRef<OsStr>, options: &StoreOptions) -> Result<Arc<dyn Store>> {
    let (scheme, rest) = find_scheme(location.as_ref())?;
    check_bucket_options(location.as_ref(), options)?;
    (scheme.open)(rest, options)
}

/// Opens the store at `location`, a path or a URL, with default options, and creates it if it does not exist.
///
/// # Errors
/// Errors of [`create_with`].
pub fn create(location: impl AsRef<OsStr>) -> Result<Arc<dyn Store>> {
    create_with(location, &StoreOptions::default())
}

/// Opens the store at `location`, a path or a URL, and creates it if it does not exist.
///
/// # Errors
/// [`Error::Usage`] if the scheme is unknown. [`Error::Io`].
pub fn create_with(location: impl AsRef<OsStr>, options: &StoreOptions) -> Result<Arc<dyn Store>> {
    let (scheme, rest) = find_scheme(location.as_ref())?;
    check_bucket_options(location.as_ref(), options)?;
    (scheme.create)(rest, options)
}

/// Fails if the user gives classes of storage, or a tag of objects, to a store that has none.
fn check_bucket_options(location: &OsStr, options: &StoreOptions) -> Result<()> {
    if is_bucket(location) {
        return Ok(());
    }
    let location = location.display();
    match (options.classes.0.first(), &options.data_tag) {
        (Some(class), _) => Err(Error::Usage(format!(
            "{location} has no classes of storage, so {class} has no meaning there: s3://, gs:// and az:// have some"
        ))),
        (None, Some(tag)) => Err(Error::Usage(format!(
            "{location} has no tags of objects, so --data-tag {tag} has no meaning there: s3:// and az:// have some"
        ))),
        (None, None) => Ok(()),
    }
}

/// Whether `location` is not of a path, so that others than the owner of this machine keep what is stored.
pub fn is_remote(location: &OsStr) -> bool {
    split_url(location).is_some_and(|(name, _)| !name.eq_ignore_ascii_case("file"))
}

/// Whether `location` is the URL of a bucket, so that a backup can read its objects.
pub fn is_bucket(location: &OsStr) -> bool {
    let is_one = |name: &str| ["s3", "gs", "az"].iter().any(|scheme| scheme.eq_ignore_ascii_case(name));
    split_url(location).is_some_and(|(name, _)| is_one(name))
}

/// The directory that `location` names. `None` if it is of another scheme than that of files, or is no valid URL.
pub fn local_path(location: &OsStr) -> Option<PathBuf> {
    match split_url(location) {
        None => Some(location.into()),
        Some((name, rest)) => name.eq_ignore_ascii_case("file").then(|| file_url_path(rest).ok()).flatten(),
    }
}

/// Returns the scheme of `location` and the text after `://`, or the whole location if it is a path.
fn find_scheme(location: &OsStr) -> Result<(&'static StoreScheme, &OsStr)> {
    let (name, rest) = split_url(location).unwrap_or(("", location));
    let found = SCHEMES.iter().find(|scheme| scheme.name.eq_ignore_ascii_case(name));
    let scheme = found.ok_or_else(|| {
        let known: Vec<&str> = SCHEMES.iter().map(|scheme| scheme.example).collect();
        Error::Usage(format!(
            "unknown scheme `{name}://` in the repository location {}: use {} (write ./{name}://... for a path that \
             looks like a URL)",
            location.display(),
            known.join(" or "),
        ))
    })?;
    Ok((scheme, rest))
}

/// Splits `scheme://rest`, or `file:/rest`. `None` for everything else.
fn split_url(location: &OsStr) -> Option<(&str, &OsStr)> {
    let bytes = location.as_bytes();
    let colon = bytes.iter().position(|byte| *byte == b':')?;
    let (name, rest) = bytes.split_at_checked(colon)?;
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    let is_scheme = name.first().is_some_and(u8::is_ascii_alphabetic) && name.iter().all(allowed);
    let is_file = name.eq_ignore_ascii_case(b"file");
    let rest =
        rest.strip_prefix(b"://").or_else(|| rest.strip_prefix(b":").filter(|path| is_file && path.starts_with(b"/")));
    let rest = rest.filter(|_| is_scheme)?;
    Some((std::str::from_utf8(name).ok()?, OsStr::from_bytes(rest)))
}

fn open_local(path: &Path) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(LocalStore::open(path)?))
}

fn create_local(path: &Path) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(LocalStore::create(path)?))
}

/// Returns the path of a file URL without its scheme: an absolute path, percent-encoded, on this machine (RFC 8089).
fn file_url_path(rest: &OsStr) -> Result<PathBuf> {
    let bytes = rest.as_bytes();
    let path = bytes.strip_prefix(b"localhost").filter(|path| path.starts_with(b"/")).unwrap_or(bytes);
    let decoded = path.starts_with(b"/").then(|| percent_decoded(path)).flatten();
    let decoded = decoded.ok_or_else(|| {
        Error::Usage(format!(
            "file://{} is not a valid file URL: expected file:///absolute/path, with `%` written as %25",
            rest.display()
        ))
    })?;
    Ok(OsString::from_vec(decoded).into())
}

/// Replaces each `%` and its two hex digits by the byte they encode. `None` if the digits are missing.
pub(super) fn percent_decoded(text: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.iter().copied();
    while let Some(byte) = rest.next() {
        let byte = match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                let (high, low) = (digit()?, digit()?);
                u8::try_from(high << 4 | low).ok()?
            }
            other => other,
        };
        decoded.push(byte);
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Durable, StorageClasses, StoreExt, contract, named};

    /// A location of a store that does not exist yet, below `directory`.
    fn location(scheme: &StoreScheme, directory: &Path) -> String {
        match scheme.name {
            "" => directory.join("plain").display().to_string(),
            "file" => format!("file://{}", directory.join("with%20space").display()),
            other => panic!("the scheme `{other}` needs a location to test"),
        }
    }

    #[test]
    fn every_scheme_opens_a_store_that_meets_the_contract() {
        // The others need servers, which `tests/it` starts.
        for scheme in SCHEMES.iter().filter(|scheme| ["", "file"].contains(&scheme.name)) {
            let directory = tempfile::tempdir().expect("creates a directory");
            let location = location(scheme, directory.path());
            assert!(matches!(open(&location), Err(Error::NoRepository { .. })), "{location}");
            let store = create(&location).expect("creates");
            contract::check(&store);
            store.put_if_absent(&named("a/b"), &[b"kept"]).expect("puts");
            let again = open(&location).expect("opens");
            assert_eq!(again.get(&named("a/b"), 10).expect("reads"), b"kept", "{location}");
            assert_eq!(again.location(), store.location());
            again.delete(&named("a/b"), Durable::OnReturn).expect("deletes");
            contract::check(&again);
        }
    }

    #[test]
    fn only_a_scheme_before_two_slashes_makes_a_url() {
        for path in ["a", "./a", "/a/b", "a:b", "c:/d", "host:dir", ":", "://a", "1://a", "a b://c", "./file:///a", ""]
        {
            assert_eq!(split_url(OsStr::new(path)), None, "{path}");
        }
        assert_eq!(split_url(OsStr::from_bytes(b"\xff://a")), None);
        for (location, name, rest) in [("file:///a", "file", "/a"), ("s3+x://b/c://d", "s3+x", "b/c://d")] {
            assert_eq!(split_url(OsStr::new(location)), Some((name, OsStr::new(rest))));
        }
    }

    #[test]
    fn an_unknown_scheme_is_a_usage_error_that_lists_the_known_ones() {
        for result in [open("s4://bucket/a"), create("s4://bucket/a")] {
            let Err(Error::Usage(text)) = result else { panic!("accepted") };
            assert!(["`s4://`", "s3://bucket", "a path", "file:///"].iter().all(|part| text.contains(part)), "{text}");
        }
    }

    #[test]
    fn what_only_buckets_have_is_refused_elsewhere() {
        let options = [
            ("containers=GLACIER", StoreOptions { classes: classes("containers=GLACIER"), ..StoreOptions::default() }),
            ("fhrd=data", StoreOptions { data_tag: "fhrd=data".parse().ok(), ..StoreOptions::default() }),
        ];
        for (given, options) in options {
            for location in ["/a/b", "file:///a/b", "sftp://user@host/a"] {
                for result in [open_with(location, &options), create_with(location, &options)] {
                    let Err(Error::Usage(text)) = result else { panic!("{given} is accepted at {location}") };
                    assert!(text.contains(given) && text.contains(location), "{text}");
                }
            }
        }
    }

    fn classes(text: &str) -> StorageClasses {
        StorageClasses(vec![text.parse().expect("a class")])
    }

    #[test]
    fn file_urls_are_absolute_local_and_percent_encoded() {
        let path = |rest: &str| file_url_path(OsStr::new(rest)).ok();
        assert_eq!(path("/a%20b/%25"), Some("/a b/%".into()));
        assert_eq!(path("localhost/a"), Some("/a".into()));
        assert_eq!(path("/%ff").map(OsString::from), Some(OsString::from_vec(b"/\xff".to_vec())));
        for invalid in ["", "a", "host/a", "localhost", "localhosts/a", "/%", "/%2", "/%2x"] {
            assert_eq!(path(invalid), None, "{invalid}");
        }
        assert!(SCHEMES.iter().any(|scheme| scheme.name == "file"));
        assert!(matches!(open("FILE://relative"), Err(Error::Usage(_))));
    }
}
