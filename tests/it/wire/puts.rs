//! What a bucket has after puts, whatever the server answers.

use fhrd::error::ErrorKind;
use fhrd::store::{BlobKind, BlobPrefix, Durable, NewName, PutOptions, Reading, Store, StoreExt, open_with};

use super::server::{Behaviour, ConditionalPut, S3Server, WireFault};
use super::{open, options};
use crate::double::named;

fn behave(server: &S3Server, fault: Option<(std::ops::Range<usize>, WireFault)>, conditional_put: ConditionalPut) {
    server.behave(Behaviour { fault, conditional_put, ..Behaviour::default() });
}

#[test]
fn a_taken_name_is_looked_at_before_it_is_believed() {
    let server = S3Server::start();
    let store = open(&server);
    let once = |fault| behave(&server, Some((0..1, fault)), ConditionalPut::Honoured);
    // Nothing was stored.
    once(WireFault::Conflict);
    assert!(store.put_if_absent(&named("a/1"), &[b"one"]).unwrap());
    // It was stored by the request whose answer was lost.
    once(WireFault::NoAnswer);
    assert!(store.put_if_absent(&named("a/2"), &[b"two"]).unwrap());
    once(WireFault::Closed);
    assert!(store.put_if_absent(&named("a/3"), &[&[3; 2_000_000]]).unwrap());
    // It was stored by somebody else.
    assert!(!store.put_if_absent(&named("a/1"), &[b"two"]).unwrap());
    once(WireFault::SlowDown);
    assert!(!store.put_if_absent(&named("a/2"), &[b"xyz"]).unwrap(), "of the same length");
    for (name, content) in [("a/1", &b"one"[..]), ("a/2", b"two"), ("a/3", &[3; 2_000_000])] {
        assert_eq!(store.get(&named(name), 1 << 22).unwrap(), content, "{name}");
    }
    // Never stored: an error, not "exists".
    behave(&server, Some((0..usize::MAX, WireFault::Conflict)), ConditionalPut::Honoured);
    let text = store.put_if_absent(&named("a/4"), &[b"four"]).unwrap_err().to_string();
    assert!(text.contains("cannot write a/4") && text.contains("nothing is stored"), "{text}");
}

#[test]
fn servers_without_conditional_puts_work_and_are_told_apart() {
    for (conditional_put, expected) in
        [(ConditionalPut::Honoured, true), (ConditionalPut::Unknown, false), (ConditionalPut::Ignored, false)]
    {
        let server = S3Server::start();
        behave(&server, None, conditional_put);
        let store = open(&server);
        assert!(store.put_if_absent(&named("config-copy"), &[b"one"]).unwrap());
        assert_eq!(store.puts_exclusively(&named("config-copy")).unwrap(), expected, "{conditional_put:?}");
        assert_eq!(store.get(&named("config-copy"), 10).unwrap(), b"one");
        if conditional_put == ConditionalPut::Unknown {
            assert!(!store.put_if_absent(&named("config-copy"), &[b"two"]).unwrap(), "it looks first");
            let fault = Some((1..2, WireFault::Closed));
            behave(&server, fault, conditional_put);
            assert!(store.put_if_absent(&named("b"), &[b"two"]).unwrap(), "stored by the request without an answer");
        }
        store.overwrite(&named("config-copy"), &[b"new"], PutOptions::default()).unwrap();
        assert_eq!(store.get(&named("config-copy"), 10).unwrap(), b"new");
    }
}

#[test]
fn a_long_stream_goes_up_in_parts_and_appears_only_whole() {
    let server = S3Server::start();
    // A busy machine takes a while for a part.
    let mut patient = options(&server);
    patient.patience.idle = std::time::Duration::from_secs(60);
    let store = open_with(super::LOCATION, &patient).unwrap();
    let whole: Vec<u8> = (0..(66u64 << 20) + 5).map(|at| (at / 7) as u8).collect();
    let (len, name) = (whole.len() as u64, named("index/a"));
    let put = |len| store.put_stream(NewName::Given(&name), len, &mut std::io::Cursor::new(&whole));
    // Look, begin, five parts, end.
    for number in 0..8 {
        for fault in [WireFault::Closed, WireFault::SlowDown] {
            server.behave(Behaviour { fault: Some((number..number + 1, fault)), ..Behaviour::default() });
            assert!(put(len).unwrap().is_new);
            assert!(store.get(&named("index/a"), len).unwrap() == whole, "{fault:?} at {number}");
            store.delete(&named("index/a"), Durable::OnReturn).unwrap();
        }
    }
    let left = server.unfinished_uploads();
    assert!(left <= 1, "one began without an answer: {left}");
    for wrong in [len - 1, len + 1] {
        put(wrong).unwrap_err();
        assert!(store.head(&named("index/a")).unwrap().is_none());
    }
    server.behave(Behaviour { fault: Some((4..usize::MAX, WireFault::ServerError)), ..Behaviour::default() });
    let text = put(len).unwrap_err().to_string();
    assert!(text.contains("index/a") && text.contains("500"), "{text}");
    server.behave(Behaviour::default());
    assert!(store.head(&named("index/a")).unwrap().is_none());
    assert_eq!(server.unfinished_uploads(), left + 1, "the server did not let this one be removed");
}

#[test]
fn listings_come_in_pages_and_have_only_blobs_below_the_prefix() {
    let server = S3Server::start();
    let store = open(&server);
    let names: Vec<String> = (0..25).map(|number| format!("containers/{:02}/x", number)).collect();
    for name in &names {
        store.put_if_absent(&named(name), &[b"12345"]).unwrap();
    }
    let bytes = server.objects()["some/prefix/containers/00/x"].clone();
    for foreign in ["some/prefix/Photo.JPG", "some/prefix2/containers/00/y", "some/prefix/containers-2/x", "other"] {
        server.objects().insert(foreign.into(), bytes.clone());
    }
    let listed = |store: &dyn Store, prefix: BlobPrefix| -> Vec<String> {
        store.list(prefix).unwrap().into_iter().map(|blob| blob.name.into()).collect()
    };
    for page in [1, 3, 7, 100] {
        let requests = 25_usize.div_ceil(page).max(1);
        for fault in [WireFault::RepeatedPage, WireFault::CutBody, WireFault::SlowDown, WireFault::ShortBody] {
            for number in 0..requests {
                server.behave(Behaviour { fault: Some((number..number + 1, fault)), page, ..Behaviour::default() });
                assert_eq!(
                    listed(store.as_ref(), BlobKind::Container.into()),
                    names,
                    "{fault:?} at {number} of {requests}"
                );
            }
        }
    }
    server.behave(Behaviour { ignores_prefix: true, ..Behaviour::default() });
    let error = store.list(BlobKind::Container.into()).unwrap_err().to_string();
    assert!(error.contains("the server lists other for some/prefix/containers"), "{error}");
    server.behave(Behaviour::default());
    assert_eq!(listed(store.as_ref(), BlobPrefix::All).len(), 26);
    let at = |location: &str| open_with(location, &options(&server)).unwrap();
    assert!(!at("s3://bucket/some").is_unused().unwrap());
    assert!(at("s3://bucket/so").is_unused().unwrap());
    assert!(at("s3://bucket/some/prefix/Photo.JPG").is_unused().unwrap());
}

#[test]
fn reads_are_never_silently_short() {
    let server = S3Server::start();
    let store = open(&server);
    let whole: Vec<u8> = (0..100_000).map(|at: u32| (at / 3) as u8).collect();
    store.put_if_absent(&named("a/b"), &[&whole]).unwrap();
    for fault in [WireFault::ShortBody, WireFault::CutBody, WireFault::WrongLength, WireFault::NoAnswer] {
        server.behave(Behaviour { fault: Some((0..1, fault)), ..Behaviour::default() });
        assert!(store.get(&named("a/b"), 100_000).unwrap() == whole, "{fault:?}");
        server.behave(Behaviour { fault: Some((0..1, fault)), ..Behaviour::default() });
        assert!(
            store.get_range(&named("a/b"), 1000, 50_000, Reading::Once).unwrap() == whole[1000..51_000],
            "{fault:?}"
        );
        server.behave(Behaviour { fault: Some((0..usize::MAX, fault)), ..Behaviour::default() });
        let text = store.get(&named("a/b"), 100_000).unwrap_err().to_string();
        assert!(text.contains("cannot read a/b") && text.contains("tried 5 times"), "{fault:?}: {text}");
    }
}

#[test]
fn refusals_say_what_is_missing() {
    let server = S3Server::start();
    let message = |location: &str, id: &str, endpoint: String| {
        let mut options = options(&server);
        options.endpoint = Some(endpoint);
        options.access_key.as_mut().unwrap().id = id.into();
        let started = std::time::Instant::now();
        let error = open_with(location, &options).unwrap().get(&named("config"), 10).unwrap_err();
        assert!(started.elapsed().as_secs() < 10, "{location}");
        (error.kind(), error.to_string())
    };
    let known = super::server::ACCESS_KEY;
    let (kind, text) = message("s3://no-bucket/a", known, server.endpoint());
    assert!(kind == ErrorKind::NoRepository && text.contains("the bucket does not exist"), "{text}");
    let (kind, text) = message("s3://bucket/a", "wrong", server.endpoint());
    assert!(kind == ErrorKind::Failed && text.contains("InvalidAccessKeyId") && text.contains("credentials"), "{text}");
    let (kind, text) = message("s3://bucket/a", known, "http://127.0.0.1:1".into());
    assert!(kind == ErrorKind::Unreachable && text.contains("check the network and the endpoint"), "{text}");
    let (_, text) = message("s3://bucket/a", known, server.endpoint().replace("http:", "https:"));
    assert!(text.contains("cannot read config in s3://bucket/a"), "{text}");
    let store = open(&server);
    server.behave(Behaviour { may_write: false, ..Behaviour::default() });
    for error in [
        store.put_if_absent(&named("a"), &[b"x"]).unwrap_err(),
        store.delete(&named("a"), Durable::OnReturn).unwrap_err(),
    ] {
        assert!(error.kind() == ErrorKind::ReadOnly && error.to_string().contains("AccessDenied"), "{error}");
    }
    assert_eq!(server.seen().len(), 2, "a refusal is not tried again");
    assert!(open_with("s3://bucket/a", &options_with(&server, "127.0.0.1:9000")).is_err(), "an endpoint is a URL");
}

fn options_with(server: &S3Server, endpoint: &str) -> fhrd::store::StoreOptions {
    fhrd::store::StoreOptions { endpoint: Some(endpoint.into()), ..options(server) }
}
