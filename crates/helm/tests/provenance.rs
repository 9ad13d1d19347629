//! Charts that the real helm signed (`helm package --sign`, 4.3.1 and 3.22.0) with a key made for this test, and what becomes of
//! them when somebody changes something. The messages are those of `helm verify`.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

use helm::{ProvenanceError, Verification, verify};

const ARCHIVE: &str = "shop-1.4.0.tgz";

fn file(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/tests/provenance/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn now() -> jiff::Timestamp {
    "2027-01-01T00:00:00Z".parse().unwrap()
}

fn check(archive: &[u8], provenance: &[u8], keyring: &[u8]) -> Result<Verification, String> {
    verify(archive, provenance, ARCHIVE, keyring, now()).map_err(|error| error.to_string())
}

fn text(name: &str) -> String {
    String::from_utf8(file(name)).unwrap()
}

#[test]
fn what_helm_signed_is_accepted() {
    for folder in ["", "helm3/"] {
        let (archive, provenance) =
            (file(&format!("{folder}{ARCHIVE}")), file(&format!("{folder}{ARCHIVE}.prov")));
        for ring in [file("signer.gpg"), file("signer.asc"), [file("other.gpg"), file("signer.gpg")].concat()]
        {
            let verification = check(&archive, &provenance, &ring).unwrap();
            assert_eq!(verification.signed_by, ["Chart Signer <signer@example.com>"]);
            assert_eq!(verification.fingerprint.to_uppercase(), "D2D3952CFFAAE883AC513851F44513417D55FD73");
            assert_eq!(verification.file_name, ARCHIVE);
            assert!(text(&format!("{folder}{ARCHIVE}.prov")).contains(&verification.file_hash));
        }
    }
}

#[test]
fn a_changed_archive_is_refused() {
    let mut archive = file(ARCHIVE);
    archive.push(b'x');
    assert_eq!(
        check(&archive, &file("shop-1.4.0.tgz.prov"), &file("signer.gpg")).unwrap_err(),
        "sha256 sum does not match for shop-1.4.0.tgz: \"sha256:9b3de37a481abfa29220e7aa42523da06ff30e6e3a7bd7d9d10b329281d50488\" != \"sha256:c1275f87381898c00cd14e828f9e40d632d8b9c516d73b2247927a6d0cd6fb72\""
    );
}

#[test]
fn a_changed_provenance_is_refused() {
    let provenance = text("shop-1.4.0.tgz.prov").replace("Sells", "Buys");
    assert_eq!(
        check(&file(ARCHIVE), provenance.as_bytes(), &file("signer.gpg")).unwrap_err(),
        "openpgp: invalid signature: RSA verification failure"
    );
}

#[test]
fn the_key_of_somebody_else_proves_nothing() {
    for ring in [file("other.gpg"), Vec::new()] {
        assert_eq!(
            check(&file(ARCHIVE), &file("shop-1.4.0.tgz.prov"), &ring).unwrap_err(),
            "openpgp: signature made by unknown entity"
        );
    }
}

#[test]
fn an_archive_of_another_name_is_not_the_one_signed() {
    let found =
        verify(&file(ARCHIVE), &file("shop-1.4.0.tgz.prov"), "other-1.tgz", &file("signer.gpg"), now());
    assert_eq!(found, Err(ProvenanceError::NotListed("other-1.tgz".to_owned())));
    assert_eq!(
        found.unwrap_err().to_string(),
        "provenance does not contain a SHA for a file named \"other-1.tgz\""
    );
}

#[test]
fn what_is_no_provenance_is_refused() {
    let refused = |provenance: &[u8]| check(&file(ARCHIVE), provenance, &file("signer.gpg")).unwrap_err();
    assert_eq!(refused(b"hello\n"), "signature block not found");
    assert_eq!(refused(&file("no-checksums.prov")), "message block must have at least two parts");
    assert_eq!(
        refused(&file("files-are-a-list.prov")),
        "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go struct field SumCollection.files of type map[string]string"
    );
    let keyring = check(&file(ARCHIVE), &file("shop-1.4.0.tgz.prov"), b"junk").unwrap_err();
    assert!(keyring.starts_with("reading keyring: "), "{keyring}");
}
