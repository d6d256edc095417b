//! Tests of key slots.

use super::*;

fn keyring() -> Keyring {
    let mut keyring = Keyring::new(SecretKey::new([1; 32]), [2; 32]).unwrap();
    keyring.rotate().unwrap();
    keyring
}

fn password(text: &str) -> Unlock {
    Unlock::Password(SecretBytes::new(text.into()))
}

fn key_file(byte: u8) -> Unlock {
    Unlock::KeyFile(SecretBytes::new(vec![byte; 40]))
}

#[test]
fn a_slot_opens_with_its_secret_alone() {
    let keyring = keyring();
    for (right, wrong) in [
        (password("correct"), [password("correct "), password(""), key_file(1)]),
        (key_file(1), [key_file(2), password("correct"), Unlock::KeyFile(SecretBytes::new(vec![1; 41]))]),
    ] {
        for suite in [CipherSuite::Aes256Gcm, CipherSuite::ChaCha20Poly1305] {
            let blob = KeySlot::new(&keyring, &right, "anna@host", suite).unwrap().encode().unwrap();
            let slot = KeySlot::parse("keys/x", &blob).unwrap();
            assert_eq!((slot.label.as_str(), slot.kind()), ("anna@host", Some(right.kind())));
            assert_eq!(slot.open("keys/x", &right).unwrap().as_ref(), Some(&keyring));
            for wrong in &wrong {
                assert_eq!(slot.open("keys/x", wrong).unwrap(), None);
            }
        }
    }
}

#[test]
fn a_slot_that_was_changed_does_not_open() {
    let slot = KeySlot::new(&keyring(), &key_file(1), "a", CipherSuite::Aes256Gcm).unwrap();
    let open = |slot: KeySlot| slot.open("keys/x", &key_file(1));
    assert!(open(slot.clone()).unwrap().is_some());
    for changed in [
        KeySlot { label: "b".into(), ..slot.clone() },
        KeySlot { time_ns: 0, ..slot.clone() },
        KeySlot { costs: Some([1, 1, 1]), ..slot.clone() },
        KeySlot { suite: 2, ..slot.clone() },
        KeySlot { sealed: Vec::new(), ..slot.clone() },
        KeySlot { sealed: slot.sealed.iter().map(|byte| byte ^ 1).collect(), ..slot.clone() },
    ] {
        assert!(matches!(open(changed), Err(Error::Corrupt { .. })));
    }
    assert!(matches!(open(KeySlot { suite: 9, ..slot.clone() }), Err(Error::Unsupported { .. })));
    assert_eq!(open(KeySlot { commitment: vec![0; 32], ..slot.clone() }).unwrap(), None);
    assert_eq!(open(KeySlot { salt: vec![0; 32], ..slot.clone() }).unwrap(), None);
    assert_eq!(open(KeySlot { kind: 7, ..slot }).unwrap(), None);
}

#[test]
fn hostile_costs_of_a_password_are_refused_before_they_are_paid() {
    let slot = KeySlot::new(&keyring(), &password("x"), "", CipherSuite::Aes256Gcm).unwrap();
    for costs in [[u32::MAX, 1, 1], [64, u32::MAX, 1], [64, 1, u32::MAX], [0, 0, 0]] {
        let hostile = KeySlot { costs: Some(costs), ..slot.clone() };
        let error = hostile.open("keys/x", &password("x")).unwrap_err().to_string();
        assert!(error.contains("keys/x"), "{error}");
    }
}

#[test]
fn unusable_secrets_make_no_slot() {
    let new = |unlock: &Unlock, label: &str| KeySlot::new(&keyring(), unlock, label, CipherSuite::Aes256Gcm);
    assert!(matches!(new(&password(""), ""), Err(Error::Usage(_))));
    assert!(matches!(new(&Unlock::KeyFile(SecretBytes::new(vec![0; 31])), ""), Err(Error::Usage(_))));
    assert!(matches!(new(&password("x"), &"x".repeat(300)), Err(Error::Usage(_))));
}

#[test]
fn secrets_are_not_shown() {
    let text = format!("{:?} {:?} {:?}", keyring(), password("hidden"), key_file(7));
    assert!(!text.contains("hidden") && !text.contains("7, 7"), "{text}");
}
