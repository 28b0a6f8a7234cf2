//! Where the environment says that files are.

use remap_ssd_leveldb::{Place, PlaceError};

fn place(variables: &[(&str, &str)]) -> Result<Option<Place>, PlaceError> {
    Place::from_variables(|name| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, text)| (*text).to_owned())
    })
}

#[test]
fn variables_name_a_device_or_memory() {
    let device = |nsid| Place::Device {
        address: "host:4420".into(),
        nsid,
    };
    let address = ("REMAP_SSD_DEVICE", "host:4420");
    assert_eq!(place(&[]).expect("valid"), None);
    assert_eq!(
        place(&[("REMAP_SSD_DEVICE", "")]).expect("nothing is said"),
        None
    );
    assert_eq!(place(&[address]).expect("valid"), Some(device(1)));
    assert_eq!(
        place(&[address, ("REMAP_SSD_NSID", "3")]).expect("valid"),
        Some(device(3))
    );
    assert_eq!(
        place(&[("REMAP_SSD_MEMORY", "64")]).expect("valid"),
        Some(Place::Memory(64))
    );

    for wrong in [
        &[address, ("REMAP_SSD_NSID", "first")][..],
        &[address, ("REMAP_SSD_MEMORY", "64")],
        &[("REMAP_SSD_MEMORY", "much")],
    ] {
        let error = place(wrong).expect_err("invalid").to_string();
        assert!(error.contains("say"), "{error}");
    }
}

#[test]
fn a_place_that_cannot_be_reached_is_named() {
    let nowhere = Place::Device {
        address: "127.0.0.1:1".into(),
        nsid: 1,
    };
    let error = nowhere.open().err().expect("nothing listens there");
    assert!(error.to_string().starts_with("127.0.0.1:1: "), "{error}");
}
