//! Routes: what the path of a request names.

use super::fault::Fault;
use super::oci::RegistryName;
use super::upload::SignedObject;
use crate::keep::upload::sha256_of;
use crate::keep::upload::xet::XetHash;
use crate::repo::published::{DEFAULT_REVISION, PublishedKind, TreePath};

/// What stands for the routes of requests that have none, in metrics.
pub const NO_ROUTE: &str = "none";

/// A name, a revision of it, and a path there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedPath {
    /// What it is.
    pub kind: PublishedKind,
    /// `ORG/NAME`.
    pub name: String,
    /// Name of a revision, or a commit.
    pub revision: String,
    /// The path. Empty for all that is shown.
    pub path: TreePath,
}

/// A page of the whole repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverviewPage {
    /// Last backups, checks and damage.
    Health,
    /// What takes the space, and since when.
    Space,
    /// Models.
    Families,
    /// Training runs.
    Runs,
}

impl OverviewPage {
    /// Its path.
    pub fn path(self) -> &'static str {
        match self {
            OverviewPage::Health => "/health",
            OverviewPage::Space => "/space",
            OverviewPage::Families => "/families",
            OverviewPage::Runs => "/runs",
        }
    }

    /// Its title.
    pub fn title(self) -> &'static str {
        match self {
            OverviewPage::Health => "Health",
            OverviewPage::Space => "Space",
            OverviewPage::Families => "Families",
            OverviewPage::Runs => "Training runs",
        }
    }
}

/// A route with what its path says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// The page of all names.
    Home,
    /// The look of all pages.
    Style,
    /// The icon of all pages.
    Icon,
    /// The page on which a token is given, and what it sends.
    Login,
    /// What ends a session of a browser.
    Logout,
    /// The page of all snapshots.
    Snapshots,
    /// A page of the whole repository.
    Overview(OverviewPage),
    /// The page of a name.
    Card(PublishedKind, String),
    /// The page of a directory.
    Files(NamedPath),
    /// The page of a file.
    Entry(NamedPath),
    /// A file, for browsers.
    Download(NamedPath),
    /// Whether it runs.
    Health,
    /// Whether it can list the snapshots.
    Ready,
    /// Metrics.
    Metrics,
    /// Who asks.
    Who,
    /// Names of a kind.
    Names(PublishedKind),
    /// A name with its files.
    Name(NamedPath),
    /// The revisions of a name.
    Revisions(PublishedKind, String),
    /// A tree.
    Tree(NamedPath),
    /// Some paths.
    Paths(NamedPath),
    /// A file.
    File(NamedPath),
    /// What creates a name.
    Create,
    /// What checks the metadata of a model card.
    ValidCard,
    /// How files shall be uploaded.
    Preupload(NamedPath),
    /// A commit.
    Commit(NamedPath),
    /// A token for xorbs and shards.
    XetToken(PublishedKind, String),
    /// What clients try that this server does not offer, such as asking whether a chunk is there.
    XetAbsent,
    /// A xorb.
    XetXorb(XetHash),
    /// A shard. Whether the answer is streamed.
    XetShard(bool),
    /// Where objects shall be put.
    ObjectBatch(PublishedKind, String),
    /// An object.
    Object(SignedObject),
    /// Whether an object was taken.
    ObjectCheck(SignedObject),
    /// A part of an object.
    ObjectPart(SignedObject, u64),
    /// What says that all parts of an object are there.
    ObjectParts(SignedObject),
    /// Whether there is a registry, and who asks.
    Registry,
    /// The manifest with a tag or a digest.
    Manifest(RegistryName, String),
    /// The blob with a digest.
    Blob(RegistryName, String),
    /// All tags.
    Tags(RegistryName),
    /// What registries have that this one does not offer.
    RegistryAbsent,
}

impl Route {
    /// The route of a path.
    ///
    /// # Errors
    /// [`Fault::NoRoute`]; [`Fault::NoName`] and [`Fault::NoRevision`] for what cannot be one.
    pub fn of(names: &[Vec<u8>]) -> Result<Self, Fault> {
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        match names.as_slice() {
            [] => Ok(Route::Home),
            [b"healthz"] => Ok(Route::Health),
            [b"readyz"] => Ok(Route::Ready),
            [b"metrics"] => Ok(Route::Metrics),
            [b"style.css"] => Ok(Route::Style),
            [b"icon.svg"] => Ok(Route::Icon),
            [b"snapshots"] => Ok(Route::Snapshots),
            [b"health"] => Ok(Route::Overview(OverviewPage::Health)),
            [b"space"] => Ok(Route::Overview(OverviewPage::Space)),
            [b"families"] => Ok(Route::Overview(OverviewPage::Families)),
            [b"runs"] => Ok(Route::Overview(OverviewPage::Runs)),
            [b"login"] => Ok(Route::Login),
            [b"logout"] => Ok(Route::Logout),
            [b"api", rest @ ..] => Self::of_api(rest),
            [b"v2", rest @ ..] => Self::of_registry(rest),
            [b"datasets", _] => Err(Fault::NoRoute),
            [b"datasets", org, name, rest @ ..] => Self::of_name(PublishedKind::Dataset, org, name, rest),
            [org, name, rest @ ..] => Self::of_name(PublishedKind::Model, org, name, rest),
            _ => Err(Fault::NoRoute),
        }
    }

    fn of_api(names: &[&[u8]]) -> Result<Self, Fault> {
        match names {
            [b"whoami-v2"] => Ok(Route::Who),
            [b"repos", b"create"] => Ok(Route::Create),
            [b"validate-yaml"] => Ok(Route::ValidCard),
            [b"xet", _, rest @ ..] => Ok(Self::of_xet(rest)),
            [kind] => Ok(Route::Names(kind_of(kind)?)),
            [kind, org, name, rest @ ..] => {
                let at = |revision: &[u8], path: &[&[u8]]| named((kind_of(kind)?, org, name), revision, path);
                match rest {
                    [] => Ok(Route::Name(at(DEFAULT_REVISION.as_bytes(), &[])?)),
                    [b"revision", revision] => Ok(Route::Name(at(revision, &[])?)),
                    [b"refs"] => Ok(Route::Revisions(kind_of(kind)?, name_of(org, name)?)),
                    [b"tree", revision, path @ ..] => Ok(Route::Tree(at(revision, path)?)),
                    [b"preupload", revision] => Ok(Route::Preupload(at(revision, &[])?)),
                    [b"commit", revision] => Ok(Route::Commit(at(revision, &[])?)),
                    [b"xet-write-token", _] => Ok(Route::XetToken(kind_of(kind)?, name_of(org, name)?)),
                    [b"paths-info", revision] => Ok(Route::Paths(at(revision, &[])?)),
                    _ => kind_of(kind).and(Err(Fault::NoRoute)),
                }
            }
            _ => Err(Fault::NoRoute),
        }
    }

    /// The routes of a registry.
    fn of_registry(names: &[&[u8]]) -> Result<Self, Fault> {
        let (kind, names) = match names {
            [b"datasets", rest @ ..] => (PublishedKind::Dataset, rest),
            names => (PublishedKind::Model, names),
        };
        let own = |org, name| name_of(org, name).map(|name| RegistryName { kind, name });
        let text = |reference: &[u8]| String::from_utf8(reference.to_vec()).map_err(|_| Fault::NoRevision);
        match names {
            [] if kind == PublishedKind::Model => Ok(Route::Registry),
            [org, name, b"manifests", reference] => Ok(Route::Manifest(own(org, name)?, text(reference)?)),
            [org, name, b"blobs", digest] => Ok(Route::Blob(own(org, name)?, text(digest)?)),
            [org, name, b"tags", b"list"] => Ok(Route::Tags(own(org, name)?)),
            _ => Ok(Route::RegistryAbsent),
        }
    }

    /// The routes of Xet. Clients send `default` as the space that hashes are in.
    fn of_xet(names: &[&[u8]]) -> Self {
        match names {
            [b"v1", b"xorbs", b"default", digits] => {
                let hash = std::str::from_utf8(digits).ok().and_then(XetHash::parse);
                hash.map_or(Route::XetAbsent, Route::XetXorb)
            }
            [b"v1", b"shards"] => Route::XetShard(false),
            [b"v2", b"shards"] => Route::XetShard(true),
            _ => Route::XetAbsent,
        }
    }

    fn of_name(kind: PublishedKind, org: &[u8], name: &[u8], rest: &[&[u8]]) -> Result<Self, Fault> {
        let at = |revision: &[u8], path: &[&[u8]]| named((kind, org, name), revision, path);
        if let Some(name) = name.strip_suffix(b".git") {
            let name = name_of(org, name)?;
            let object = |oid: &[u8]| {
                let digits = std::str::from_utf8(oid).ok().and_then(sha256_of);
                Ok(SignedObject { kind, name: name.clone(), sha256: digits.ok_or(Fault::NoRoute)? })
            };
            return match rest {
                [b"info", b"lfs", b"objects", b"batch"] => Ok(Route::ObjectBatch(kind, name)),
                [b"lfs", oid] => object(oid).map(Route::Object),
                [b"lfs", oid, b"verify"] => object(oid).map(Route::ObjectCheck),
                [b"lfs", oid, b"parts"] => object(oid).map(Route::ObjectParts),
                [b"lfs", oid, b"part", number] => {
                    let number = std::str::from_utf8(number).ok().and_then(|text| text.parse().ok());
                    Ok(Route::ObjectPart(object(oid)?, number.ok_or(Fault::NoRoute)?))
                }
                _ => Err(Fault::NoRoute),
            };
        }
        match rest {
            [] => Ok(Route::Card(kind, name_of(org, name)?)),
            [b"tree", revision, path @ ..] => Ok(Route::Files(at(revision, path)?)),
            [_, _] => Err(Fault::NoRoute),
            [b"blob", revision, path @ ..] => Ok(Route::Entry(at(revision, path)?)),
            [b"download", revision, path @ ..] => Ok(Route::Download(at(revision, path)?)),
            [b"resolve", revision, path @ ..] => Ok(Route::File(at(revision, path)?)),
            _ => Err(Fault::NoRoute),
        }
    }

    /// Its name in metrics: there are a few of them, whatever is asked for.
    pub fn template(&self) -> &'static str {
        match self {
            Route::Home => "/",
            Route::Health => "/healthz",
            Route::Ready => "/readyz",
            Route::Metrics => "/metrics",
            Route::Who => "/api/whoami-v2",
            Route::Names(_) => "/api/{kind}",
            Route::Name(_) => "/api/{kind}/{name}",
            Route::Revisions(..) => "/api/{kind}/{name}/refs",
            Route::Tree(_) => "/api/{kind}/{name}/tree/{revision}/{path}",
            Route::Paths(_) => "/api/{kind}/{name}/paths-info/{revision}",
            Route::File(_) => "/{name}/resolve/{revision}/{path}",
            Route::Create => "/api/repos/create",
            Route::ValidCard => "/api/validate-yaml",
            Route::Preupload(_) => "/api/{kind}/{name}/preupload/{revision}",
            Route::Commit(_) => "/api/{kind}/{name}/commit/{revision}",
            Route::XetToken(..) => "/api/{kind}/{name}/xet-write-token/{revision}",
            Route::XetAbsent => "/api/xet/{place}/{path}",
            Route::XetXorb(_) => "/api/xet/{place}/v1/xorbs/{xorb}",
            Route::XetShard(false) => "/api/xet/{place}/v1/shards",
            Route::XetShard(true) => "/api/xet/{place}/v2/shards",
            Route::ObjectBatch(..) => "/{name}.git/info/lfs/objects/batch",
            Route::Object(_) => "/{name}.git/lfs/{object}",
            Route::ObjectCheck(_) => "/{name}.git/lfs/{object}/verify",
            Route::ObjectPart(..) => "/{name}.git/lfs/{object}/part/{part}",
            Route::ObjectParts(_) => "/{name}.git/lfs/{object}/parts",
            Route::Registry => "/v2",
            Route::Manifest(..) => "/v2/{name}/manifests/{reference}",
            Route::Blob(..) => "/v2/{name}/blobs/{digest}",
            Route::Tags(_) => "/v2/{name}/tags/list",
            Route::RegistryAbsent => "/v2/{path}",
            Route::Style => "/style.css",
            Route::Icon => "/icon.svg",
            Route::Login => "/login",
            Route::Logout => "/logout",
            Route::Snapshots => "/snapshots",
            Route::Overview(page) => page.path(),
            Route::Card(..) => "/{name}",
            Route::Files(_) => "/{name}/tree/{revision}/{path}",
            Route::Entry(_) => "/{name}/blob/{revision}/{path}",
            Route::Download(_) => "/{name}/download/{revision}/{path}",
        }
    }

    /// Whether it says nothing of what is stored, or its URL or its own token is signed, so that nobody needs a token.
    pub fn is_open(&self) -> bool {
        let is_object = matches!(self, Route::Object(_) | Route::ObjectCheck(_));
        let is_part = matches!(self, Route::ObjectPart(..) | Route::ObjectParts(_));
        if is_object || is_part || matches!(self, Route::XetAbsent | Route::XetXorb(_) | Route::XetShard(_)) {
            return true;
        }
        matches!(self, Route::Health | Route::Ready | Route::Style | Route::Icon | Route::Login | Route::Logout)
    }

    /// Whether it is for people: a session of a browser counts, and what fails is a page.
    pub fn is_page(&self) -> bool {
        let is_file = matches!(self, Route::Files(_) | Route::Entry(_) | Route::Download(_));
        let is_whole = matches!(self, Route::Snapshots | Route::Overview(_));
        is_file || is_whole || matches!(self, Route::Home | Route::Login | Route::Logout | Route::Card(..))
    }

    /// Whether it is of a registry.
    pub fn is_registry(&self) -> bool {
        let is_content = matches!(self, Route::Manifest(..) | Route::Blob(..) | Route::Tags(_));
        is_content || matches!(self, Route::Registry | Route::RegistryAbsent)
    }

    /// Whether its clients send a user and a token as their password.
    pub fn takes_password(&self) -> bool {
        self.is_registry() || matches!(self, Route::ObjectBatch(..))
    }

    /// The methods that it has.
    pub fn methods(&self) -> &'static str {
        match self {
            Route::Paths(_) | Route::Logout | Route::ObjectCheck(_) | Route::ObjectBatch(..) => "POST",
            Route::Create | Route::ValidCard | Route::Preupload(_) | Route::Commit(_) => "POST",
            Route::XetXorb(_) | Route::XetShard(_) => "POST",
            Route::ObjectParts(_) => "POST",
            Route::Object(_) | Route::ObjectPart(..) => "PUT",
            Route::XetAbsent => "GET, HEAD, POST",
            Route::Login => "GET, HEAD, POST",
            _ => LOOKS,
        }
    }
}

/// Methods of all routes but some.
pub const LOOKS: &str = "GET, HEAD";

fn named(
    (kind, org, name): (PublishedKind, &[u8], &[u8]),
    revision: &[u8],
    path: &[&[u8]],
) -> Result<NamedPath, Fault> {
    let name = name_of(org, name)?;
    let revision = std::str::from_utf8(revision).map_err(|_| Fault::NoRevision)?.to_string();
    Ok(NamedPath { kind, name, revision, path: path.iter().map(|name| name.to_vec()).collect() })
}

/// Spaces and other kinds have no names here.
fn kind_of(kind: &[u8]) -> Result<PublishedKind, Fault> {
    match kind {
        b"models" => Ok(PublishedKind::Model),
        b"datasets" => Ok(PublishedKind::Dataset),
        b"spaces" | b"kernels" | b"buckets" => Err(Fault::NoName),
        _ => Err(Fault::NoRoute),
    }
}

fn name_of(org: &[u8], name: &[u8]) -> Result<String, Fault> {
    match (std::str::from_utf8(org), std::str::from_utf8(name)) {
        (Ok(org), Ok(name)) => Ok(format!("{org}/{name}")),
        _ => Err(Fault::NoName),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::target::RequestTarget;

    fn route(path: &str) -> Result<Route, Fault> {
        Route::of(&RequestTarget::parse(path, None).unwrap().names)
    }

    #[test]
    fn an_encoded_slash_stays_in_a_revision() {
        let Ok(Route::File(found)) = route("/datasets/a/b/resolve/refs%2Fpr%2F1/c/d%20e") else { panic!("no file") };
        let path = vec![b"c".to_vec(), b"d e".to_vec()];
        let (name, revision) = ("a/b".to_string(), "refs/pr/1".to_string());
        assert_eq!(found, NamedPath { kind: PublishedKind::Dataset, name, revision, path });
        assert!(matches!(route("/api/models/a/b"), Ok(Route::Name(found)) if found.revision == DEFAULT_REVISION));
    }

    #[test]
    fn a_registry_has_names_of_two_parts_and_datasets() {
        let digest = format!("sha256:{}", "0".repeat(64));
        let model = || RegistryName { kind: PublishedKind::Model, name: "a/b".into() };
        let dataset = RegistryName { kind: PublishedKind::Dataset, name: "a/b".into() };
        assert_eq!((route("/v2/").ok(), route("/v2").ok()), (Some(Route::Registry), Some(Route::Registry)));
        assert_eq!(route("/v2/a/b/manifests/v1").ok(), Some(Route::Manifest(model(), "v1".into())));
        assert_eq!(route(&format!("/v2/a/b/blobs/{digest}")).ok(), Some(Route::Blob(model(), digest.clone())));
        assert_eq!(route("/v2/datasets/a/b/tags/list").ok(), Some(Route::Tags(dataset)));
        for path in
            ["/v2/_catalog", "/v2/a/manifests/x", "/v2/a/b/c/manifests/x", "/v2/a/b/referrers/x", "/v2/datasets"]
        {
            assert_eq!(route(path).ok(), Some(Route::RegistryAbsent), "{path}");
        }
        assert!(matches!(route("/v2/%ff/b/tags/list"), Err(Fault::NoName)));
    }

    #[test]
    fn what_is_no_route_has_no_template() {
        for path in [
            "/x",
            "/a/b/resolve/main",
            "/a/b/blob/main",
            "/a/b/download/main",
            "/a/b/x",
            "/api",
            "/datasets/a",
            "/api/models/a",
            "/api/models/a/b/c",
            "/datasets/a/resolve/b",
        ] {
            assert!(matches!(route(path), Err(Fault::NoRoute)), "{path}");
        }
        assert!(matches!(route("/api/spaces/a/b/c"), Err(Fault::NoName)));
        assert!(matches!(route("/a/%ff/resolve/main/x"), Err(Fault::NoName)));
        assert!(matches!(route("/a/b/resolve/%ff/x"), Err(Fault::NoRevision)));
        let templates = ["/", "/metrics", "/api/models", "/a/b/resolve/c/d", "/datasets/a/b", "/a/b/tree/c"]
            .map(|path| route(path).unwrap().template());
        let (file, files) = ("/{name}/resolve/{revision}/{path}", "/{name}/tree/{revision}/{path}");
        assert_eq!(templates, ["/", "/metrics", "/api/{kind}", file, "/{name}", files]);
    }
}
