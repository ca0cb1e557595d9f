//! What the fuzz target `config` has found worth keeping, read as the target does.

mod answered;

#[test]
fn the_corpus_of_configs_replays() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/config");
    let mut files = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        answered::is_answered(&String::from_utf8_lossy(&std::fs::read(file.unwrap().path()).unwrap()));
        files += 1;
    }
    assert!(files >= 10, "{files} files");
}
