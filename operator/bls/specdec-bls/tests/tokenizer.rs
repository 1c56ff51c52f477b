//! Tokenizers of model directories, lists of stop words, and biases.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use shipped::{helper, open, pair};
use triton_specdec::error::Error;
use triton_specdec::tokenizer::{HubTokenizer, Special, Tokenizer, is_true, text_of, word_array};

mod shipped;

fn refused(folder: &Path) -> String {
    open(folder)
        .err()
        .map(|error| error.message().to_owned())
        .unwrap_or_default()
}

/// An empty directory of this test.
fn directory(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// `tests/unit/triton/test_native_text.py` compares the same data with the Python library.
#[test]
fn shipped_pair_has_the_tokens_of_the_python_library() {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/data/shipped_tokens.json"
    );
    let known: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let tokenizer = open(&pair()).unwrap();
    let ids_of = |row: &Value| -> Vec<i32> { serde_json::from_value(row[1].clone()).unwrap() };
    for row in known["encoded"].as_array().unwrap() {
        let text = row[0].as_str().unwrap();
        assert_eq!(tokenizer.encode(text).unwrap(), ids_of(row), "{text:?}");
    }
    for row in known["decoded"].as_array().unwrap() {
        assert_eq!(tokenizer.decode(&ids_of(row)), row[0].as_str().unwrap());
    }
}

#[test]
fn lists_of_stop_words_are_ids_and_end_offsets() {
    let array = word_array("stop_words_list", &[vec![7, 8], vec![9]]);
    assert_eq!(array.shape, [1, 2, 3]);
    assert_eq!(array.integers(), [7, 8, 9, 2, 3, -1]);
    assert_eq!(word_array("stop_words_list", &[]).shape, [1, 2, 0]);
}

#[test]
fn bias_needs_a_weight_for_every_word() {
    let tokenizer = open(&pair()).unwrap();
    let bias_words = ["x".to_owned(), String::new()];
    let bias = tokenizer.bias(&bias_words, &[2.0, 1.0]).unwrap();
    let token = tokenizer.encode_list(&bias_words).unwrap()[0][0];
    assert_eq!(bias.len(), tokenizer.size());
    assert_eq!(bias[token as usize], 2.0);
    assert_eq!(bias.iter().filter(|weight| **weight != 0.0).count(), 1);
    let error = tokenizer
        .bias(&bias_words, &[1.0])
        .unwrap_err()
        .message()
        .to_owned();
    assert!(error.contains("has 2 words and embedding_bias_weights 1 weights: send one weight"));
}

/// A tokenizer whose only token lies outside of its vocabulary.
struct OutsideVocabulary;

impl Tokenizer for OutsideVocabulary {
    fn encode(&self, _: &str) -> Result<Vec<i32>, Error> {
        Ok(vec![1])
    }
    fn encode_word(&self, word: &str) -> Result<Vec<i32>, Error> {
        self.encode(word)
    }
    fn decode(&self, _: &[i32]) -> String {
        String::new()
    }
    fn end_id(&self) -> i32 {
        -1
    }
    fn pad_id(&self) -> i32 {
        -1
    }
    fn size(&self) -> usize {
        1
    }
}

#[test]
fn bias_of_a_token_outside_of_the_vocabulary_is_refused() {
    let error = OutsideVocabulary
        .bias(&["x".to_owned()], &[1.0])
        .unwrap_err()
        .message()
        .to_owned();
    assert!(
        error.contains("\"x\", whose token 1 lies outside of the vocabulary of 1"),
        "{error}"
    );
}

#[test]
fn text_is_utf_8_and_booleans_have_several_values() {
    assert_eq!(text_of("é".as_bytes(), "text_input").unwrap(), "é");
    let error = text_of(b"ab\xc3", "text_input").unwrap_err();
    assert_eq!(
        error.message(),
        "text_input is not UTF-8 at byte 2: send UTF-8 text"
    );
    assert!(["true", "1", "", "maybe"].into_iter().all(is_true));
    assert!(!["False", " no ", "0", "F", "n"].into_iter().any(is_true));
}

#[test]
fn special_tokens_come_from_the_directory() {
    assert_eq!(open(&pair()).unwrap().end_id(), 0);
    let folder = directory("special");
    fs::copy(pair().join("tokenizer.json"), folder.join("tokenizer.json")).unwrap();
    assert_eq!(open(&folder).unwrap().end_id(), -1);
    // Python writes infinities into the configurations of some models.
    let config =
        r#"{"limits": [0.0, Infinity, -Infinity, NaN], "a\"NaN": "", "eos_token_id": [3, 4]}"#;
    fs::write(folder.join("config.json"), config).unwrap();
    let tokenizer = open(&folder).unwrap();
    assert_eq!((tokenizer.end_id(), tokenizer.pad_id()), (3, 3));
    fs::write(
        folder.join("generation_config.json"),
        r#"{"eos_token_id": 5}"#,
    )
    .unwrap();
    let named = r#"{"pad_token": {"content": "!"}, "eos_token": null}"#;
    fs::write(folder.join("special_tokens_map.json"), named).unwrap();
    let tokenizer = open(&folder).unwrap();
    assert_eq!((tokenizer.end_id(), tokenizer.pad_id()), (5, 1));
    fs::write(
        folder.join("tokenizer_config.json"),
        r#"{"eos_token": "\""}"#,
    )
    .unwrap();
    assert_eq!(open(&folder).unwrap().end_id(), 2);
    fs::write(folder.join("tokenizer_config.json"), "{").unwrap();
    assert!(refused(&folder).contains("tokenizer_config.json is no JSON: "));
}

#[test]
fn special_tokens_can_be_kept_in_text() {
    let path = pair().to_string_lossy().into_owned();
    let kept = Special {
        add: true,
        skip: false,
    };
    let tokenizer = HubTokenizer::open(&path, kept, &helper()).unwrap();
    assert_eq!(tokenizer.decode(&[0, 33]), "<|endoftext|>A");
    assert_eq!(open(&pair()).unwrap().decode(&[0, -1, 33, 1_000_000]), "A");
}

#[test]
fn prompt_is_neither_truncated_nor_padded() {
    let folder = directory("truncated");
    let whole = fs::read_to_string(pair().join("tokenizer.json")).unwrap();
    let cut = whole.replacen(
        r#""truncation":null,"padding":null"#,
        r#""truncation":{"direction":"Right","max_length":2,"strategy":"LongestFirst","stride":0},
           "padding":{"strategy":{"Fixed":50},"direction":"Right","pad_to_multiple_of":null,
           "pad_id":0,"pad_type_id":0,"pad_token":"<|endoftext|>"}"#,
        1,
    );
    assert_ne!(cut, whole);
    fs::write(folder.join("tokenizer.json"), cut).unwrap();
    let ids = open(&folder).unwrap().encode("漢字漢字").unwrap();
    assert_eq!(ids, open(&pair()).unwrap().encode("漢字漢字").unwrap());
}

#[test]
fn broken_tokenizer_is_named() {
    let folder = directory("broken");
    for content in ["{}", "no json"] {
        fs::write(folder.join("tokenizer.json"), content).unwrap();
        let error = refused(&folder);
        assert!(error.contains("tokenizer.json is no tokenizer"), "{error}");
    }
}

#[test]
fn directory_without_a_tokenizer_is_named() {
    let folder = directory("empty");
    let error = refused(&folder);
    let begin = format!("tokenizer_dir {} ", folder.display());
    assert!(error.starts_with(&begin), "{error}");
    assert!(error.contains("tokenizer.json"), "{error}");
}

/// A program to run in place of `tokenizer_json.py`, which prints this text.
fn helper_that_prints(folder: &Path, printed: &str) -> PathBuf {
    let file = folder.join("helper.py");
    fs::write(&file, format!("print(r'''{printed}''')\n")).unwrap();
    file
}

#[test]
fn directory_without_tokenizer_json_is_read_by_transformers() {
    let folder = directory("older");
    let content = fs::read_to_string(pair().join("tokenizer.json")).unwrap();
    let path = folder.to_string_lossy().into_owned();
    let mut answer = serde_json::json!({
        "tokenizer": content, "end_id": 7, "pad_id": null, "clean_up": false,
    });
    let helper = helper_that_prints(&folder, &answer.to_string());
    let tokenizer = HubTokenizer::open(&path, Special::default(), &helper).unwrap();
    assert_eq!((tokenizer.end_id(), tokenizer.pad_id()), (7, 7));
    let ids = tokenizer.encode("I do n't .").unwrap();
    assert_eq!(ids, open(&pair()).unwrap().encode("I do n't .").unwrap());
    assert_eq!(tokenizer.decode(&ids), "I do n't .");
    answer["clean_up"] = true.into();
    let helper = helper_that_prints(&folder, &answer.to_string());
    let tokenizer = HubTokenizer::open(&path, Special::default(), &helper).unwrap();
    assert_eq!(tokenizer.decode(&ids), "I don't.");
}

#[test]
fn failure_of_transformers_is_reported() {
    let folder = directory("failing");
    let path = folder.to_string_lossy().into_owned();
    let file = folder.join("helper.py");
    fs::write(&file, "raise RuntimeError('too old')\n").unwrap();
    let open = || HubTokenizer::open(&path, Special::default(), &file);
    let error = open().err().unwrap().message().to_owned();
    assert!(error.contains("(RuntimeError: too old)"), "{error}");
    fs::write(&file, "print('{\"tokenizer\": \"{}\"}')\n").unwrap();
    let error = open().err().unwrap().message().to_owned();
    assert!(
        error.contains("holds no tokenizer that can be read here"),
        "{error}"
    );
}

/// `tests/unit/triton/test_text.py` has the same cases for the Python text models.
#[test]
fn longest_token_bounds_the_bytes_of_a_token() {
    // The pair is byte-level, and its longest token has 37 bytes.
    assert_eq!(open(&pair()).unwrap().bytes_per_token(), 37);
    let whole = fs::read_to_string(pair().join("tokenizer.json")).unwrap();
    let byte_level =
        r#"{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}"#;
    let before = |steps: &str| {
        format!(r#""pre_tokenizer":{{"type":"Sequence","pretokenizers":[{steps},{byte_level}]}}"#)
    };
    let split = |behavior: &str| {
        let pattern = r#""pattern":{"String":" "},"invert":false"#;
        before(&format!(
            r#"{{"type":"Split",{pattern},"behavior":"{behavior}"}}"#
        ))
    };
    let kept = format!(r#""pre_tokenizer":{byte_level}"#);
    let no_normalizer = r#""normalizer":null"#.to_owned();
    let named = r#""content":"<|endoftext|>""#.to_owned();
    let longer = r#""content":"<|a token that somebody added to the vocabulary|>""#.to_owned();
    for (name, old, new, bytes) in [
        ("split", &kept, split("Isolated"), 37),
        ("removed", &kept, split("Removed"), 4 * 37),
        (
            "blanks",
            &kept,
            before(r#"{"type":"WhitespaceSplit"}"#),
            4 * 37,
        ),
        (
            "composed",
            &no_normalizer,
            r#""normalizer":{"type":"NFC"}"#.to_owned(),
            4 * 37,
        ),
        (
            "prepended",
            &no_normalizer,
            r#""normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"a"}]}"#
                .to_owned(),
            37,
        ),
        // The characters of the vocabulary's longest token have two bytes each.
        ("plain", &kept, r#""pre_tokenizer":null"#.to_owned(), 4 * 74),
        ("added", &named, longer, 49),
    ] {
        let folder = directory(name);
        let file = whole.replacen(old.as_str(), &new, 1);
        assert_ne!(file, whole, "{name}");
        fs::write(folder.join("tokenizer.json"), file).unwrap();
        let bound = open(&folder).unwrap().bytes_per_token();
        assert_eq!(bound, bytes, "{name}");
    }
}
