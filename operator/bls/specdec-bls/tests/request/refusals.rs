//! Requests that cannot be served are refused with one sentence each.

use triton::{DataType, Tensor, packed};
use triton_specdec::request::Capabilities;

use crate::client::{flag, float, int, long, server, texts, try_parse};

fn refused(more: Vec<Tensor>, server: &Capabilities) -> String {
    let error = try_parse(more, server).expect_err("a request that cannot be served");
    assert!(!error.message().contains('\n'));
    error.to_string()
}

fn bytes(name: &'static str, value: &[u8]) -> Tensor {
    Tensor::new(name, DataType::Bytes, &[1, 1], packed(&[value]))
}

#[test]
fn value_out_of_bounds_is_refused() {
    let cases = [
        (
            int("num_draft_tokens", 9),
            "num_draft_tokens is 9, but this server allows at most 8: lower it, or raise \
             draftLengthCeiling or maxDraftTokens",
        ),
        (
            int("num_draft_tokens", -1),
            "num_draft_tokens is -1: set it to 0 or more",
        ),
        // The field is set, but has no value.
        (
            Tensor::int32("num_draft_tokens", &[1, 0], &[]),
            "num_draft_tokens is -1: set it to 0 or more",
        ),
        (int("max_tokens", 0), "max_tokens is 0: set it to 1 or more"),
        (
            int("max_tokens", -3),
            "max_tokens is -3: set it to 1 or more",
        ),
        (
            int("min_length", -2),
            "min_length is -2: set it to 0 or more",
        ),
        (
            int("min_tokens", -2),
            "min_tokens is -2: set it to 0 or more",
        ),
        (
            int("beam_width", 2),
            "beam_width is 2, but the engines are built for one beam: set it to 1",
        ),
        (
            Tensor::int32("num_return_sequences", &[1], &[3]),
            "num_return_sequences is 3, but the engines are built for one beam: set it to 1",
        ),
        (
            int("num_return_sequences", 0),
            "num_return_sequences is 0, but the engines are built for one beam: set it to 1",
        ),
    ];
    for (given, sentence) in cases {
        assert_eq!(refused(vec![given], &server()), sentence);
    }
}

#[test]
fn prompt_that_leaves_no_token_is_refused() {
    for (max_seq_len, most) in [(2, 1), (1, 0)] {
        let server = Capabilities {
            max_seq_len,
            ..server()
        };
        let sentence = format!(
            "text_input has 2 tokens, more than the limit of {most} for a prompt: send a shorter \
             prompt"
        );
        assert_eq!(refused(vec![], &server), sentence);
    }
}

#[test]
fn prompt_without_text_is_refused() {
    let empty = "text_input is empty: send at least one character";
    for prompt in [
        texts("text_input", &[&[""]]),
        texts("text_input", &[&[]]),
        Tensor::new("text_input", DataType::Bytes, &[0, 1], Vec::new()),
    ] {
        assert_eq!(refused(vec![prompt], &server()), empty);
    }
    let cases = [
        (
            &b"\xff\xfe"[..],
            "text_input is not UTF-8 at byte 0: send UTF-8 text",
        ),
        (
            &b"ab\xc3"[..],
            "text_input is not UTF-8 at byte 2: send UTF-8 text",
        ),
        // The tokenizer's message is passed on.
        (&b"\x07"[..], "text_input has a bell"),
    ];
    for (value, sentence) in cases {
        assert_eq!(
            refused(vec![bytes("text_input", value)], &server()),
            sentence
        );
    }
    for name in ["stop_words", "bad_words", "embedding_bias_words"] {
        let weight = float("embedding_bias_weights", 1.0);
        let sentence = format!("{name} is not UTF-8 at byte 1: send UTF-8 text");
        assert_eq!(
            refused(vec![bytes(name, b"a\xff"), weight], &server()),
            sentence
        );
    }
}

#[test]
fn image_is_refused() {
    for name in [
        "image_input",
        "image_bytes_input",
        "video_bytes_input",
        "image_url_input",
    ] {
        let sentence = format!("{name} is given, but this server reads text only: leave it out");
        assert_eq!(refused(vec![texts(name, &[&["x"]])], &server()), sentence);
    }
}

#[test]
fn stream_is_refused_without_streaming() {
    let once = Capabilities {
        streams: false,
        ..server()
    };
    assert_eq!(
        refused(vec![flag("stream", true)], &once),
        "stream is true, but this server answers once: leave stream out, or deploy with \
         spec.serving.streaming true"
    );
    assert!(try_parse(vec![flag("stream", false)], &once).is_ok());
}

#[test]
fn draft_tokens_are_refused_without_a_draft() {
    let alone = Capabilities {
        drafts: false,
        has_draft_model: false,
        draft_tokens: 0,
        ..server()
    };
    assert_eq!(
        refused(vec![int("num_draft_tokens", 2)], &alone),
        "num_draft_tokens is 2, but this server has no draft model: leave it out or set it to 0"
    );
    assert!(try_parse(vec![int("num_draft_tokens", 0)], &alone).is_ok());
}

#[test]
fn draft_logits_are_refused_where_only_lookups_draft() {
    let lookups = Capabilities {
        has_draft_model: false,
        ..server()
    };
    assert_eq!(
        refused(vec![flag("use_draft_logits", true)], &lookups),
        "use_draft_logits is true, but this server drafts by lookups, which have no logits: \
         leave it out"
    );
    assert!(try_parse(vec![flag("use_draft_logits", false)], &lookups).is_ok());
    assert!(try_parse(vec![flag("use_draft_logits", true)], &server()).is_ok());
}

#[test]
fn draft_tokens_with_target_only_inputs_are_refused() {
    for only in [
        flag("return_context_logits", true),
        flag("return_generation_logits", true),
        long("lora_task_id", 1),
        int("prompt_vocab_size", 1),
        texts("guided_decoding_guide", &[&["{}"]]),
    ] {
        let sentence = format!(
            "{} cannot be combined with num_draft_tokens 2: set num_draft_tokens to 0 or \
             leave the other out",
            only.name
        );
        let given = vec![only.clone(), int("num_draft_tokens", 2)];
        assert_eq!(refused(given, &server()), sentence);
        assert!(try_parse(vec![only, int("num_draft_tokens", 0)], &server()).is_ok());
    }
}

#[test]
fn bias_with_another_number_of_weights_is_refused() {
    for (more, items, weights) in [
        (texts("embedding_bias_words", &[&["a"]]), 1, 0),
        (float("embedding_bias_weights", 1.0), 0, 1),
    ] {
        let sentence = format!(
            "embedding_bias_words has {items} words and embedding_bias_weights {weights} weights: \
             send one weight for every word"
        );
        assert_eq!(refused(vec![more], &server()), sentence);
    }
}

#[test]
fn first_error_is_reported() {
    let given = vec![
        int("beam_width", 2),
        int("max_tokens", 0),
        texts("image_url_input", &[&["x"]]),
        texts("text_input", &[&[""]]),
    ];
    assert!(refused(given.clone(), &server()).starts_with("image_url_input"));
    assert!(refused(given[..2].to_vec(), &server()).starts_with("beam_width"));
    assert!(refused(vec![given[1].clone(), given[3].clone()], &server()).starts_with("text_input"));
}

#[test]
fn one_bad_prompt_refuses_the_request() {
    let given = vec![
        texts("text_input", &[&["ab"], &[""]]),
        Tensor::int32("max_tokens", &[2, 1], &[8, 8]),
    ];
    assert!(refused(given, &server()).starts_with("text_input is empty"));
}

#[test]
fn tensors_that_contradict_their_shape_are_refused() {
    let shape = Tensor::int32("top_k", &[1, 2], &[1]);
    let text = Tensor::new(
        "stop_words",
        DataType::Bytes,
        &[1, 1],
        vec![9, 0, 0, 0, b'a'],
    );
    let overflow = Tensor::int32("top_k", &[1, i64::MAX, i64::MAX], &[1]);
    for (given, message) in [
        (
            shape,
            "top_k has 4 bytes, which is not what its shape [1, 2] needs",
        ),
        (
            text,
            "stop_words has 5 bytes, which is not what its shape [1, 1] needs",
        ),
        (overflow, "top_k has 4 bytes"),
        (
            Tensor::int32("top_k", &[], &[1]),
            "top_k has the shape [] beside 1 prompts",
        ),
        (
            Tensor::int32("top_k", &[2, 1], &[1, 1]),
            "top_k has the shape [2, 1] beside 1",
        ),
        (
            int("text_input", 1),
            "text_input is of type Int32: send text",
        ),
        (
            texts("max_tokens", &[&["8"]]),
            "max_tokens is text: send a number",
        ),
        (
            float("max_tokens", f32::NAN),
            "max_tokens is NaN: send a whole number",
        ),
        (
            texts("embedding_bias_weights", &[&["8"]]),
            "embedding_bias_weights is text",
        ),
        (
            long("end_id", 1 << 40),
            "end_id is 1099511627776: send a number of 32 bits",
        ),
    ] {
        let sentence = refused(vec![given], &server());
        assert!(sentence.starts_with(message), "{sentence}");
    }
}

#[test]
fn long_scope_is_refused_without_its_name() {
    let scope = bytes("lookup_scope", &[b'x'; 129]);
    assert_eq!(
        refused(vec![scope], &server()),
        "lookup_scope has 129 bytes, more than the limit of 128: use a shorter one"
    );
}
