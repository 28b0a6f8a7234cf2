//! Images of devices whose indirection unit is larger than a page.

use remap_ssd_device::{Device, DeviceConfig};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_share::{ImageNamespaces, NamespacePage, Namespaces};

#[test]
fn the_last_page_of_a_device_with_units_is_in_its_namespace() {
    let settings = [
        "geometry.page_bytes=16384",
        "geometry.indirection_bytes=16384",
        "geometry.pages_per_block=256",
    ];
    let settings = settings.map(|one| one.parse().expect("valid"));
    let config = DeviceConfig::for_service(32 << 20, SchemeKind::RemapSsd, false);
    let config = config.expect("possible").with(&settings).expect("possible");
    let dir = tempfile::tempdir().expect("a folder");
    let device = Device::create_in_folder(dir.path(), config, None).expect("room for it");
    drop(device.close().expect("the disk works"));

    let mut image = ImageNamespaces::open(dir.path()).expect("an image");
    assert_eq!(image.pages(1), (32 << 20) / 4096);
    let last = NamespacePage {
        nsid: 1,
        page: image.pages(1) - 1,
    };
    let mut read = [0; 4096];
    image.write(last, &[7; 4096]).expect("it is there");
    image.read(last, &mut read).expect("it is there");
    assert_eq!(read, [7; 4096]);
    image.close().expect("the disk works");
}
