//! What the fuzz target `pool` has found worth keeping, driven as the target does.

mod driver;
mod world;

#[test]
fn the_corpus_of_pools_replays() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/pool");
    let mut files = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        world::bytes::drive_bytes(&std::fs::read(file.unwrap().path()).unwrap());
        files += 1;
    }
    assert!(files >= 10, "{files} files");
}
