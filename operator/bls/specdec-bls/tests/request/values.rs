//! The tasks that valid requests become.

use triton::{DataType, Tensor, packed};
use triton_specdec::request::{Capabilities, parse};

use crate::client::{
    Letters, flag, float, int, long, named, parse_one, request, server, task, texts,
};

#[test]
fn request_without_options() {
    let task = task(vec![]);
    assert_eq!(task.prompt, [1, 2]);
    assert_eq!(
        (task.max_tokens, task.draft_tokens, task.min_tokens),
        (8, 4, 0)
    );
    assert!(task.adaptive);
    assert_eq!(task.end_id, 90);
    assert_eq!(task.seed, None);
    assert!(task.stop_words.is_empty() && task.stop_texts.is_empty());
    assert!(task.target_only_inputs.is_empty() && task.target_only_outputs.is_empty());
    assert_eq!(task.common, [int("end_id", 90), int("pad_id", 91)]);
    assert!(!task.stream && !task.exclude_input && !task.log_probs && !task.statistics);
    assert!(!task.input_count && !task.output_count && !task.use_draft_logits);
    assert_eq!(
        (task.min_tokens_name, task.seed_name),
        ("min_length", "random_seed")
    );
}

#[test]
fn every_flag_is_read() {
    let task = task(vec![
        flag("stream", true),
        flag("exclude_input_in_output", true),
        flag("return_log_probs", true),
        flag("return_perf_metrics", true),
        flag("return_num_input_tokens", true),
        flag("return_num_output_tokens", true),
        flag("use_draft_logits", true),
    ]);
    assert!(task.stream && task.exclude_input && task.log_probs && task.statistics);
    assert!(task.input_count && task.output_count && task.use_draft_logits);
    assert_eq!(
        task.target_only_inputs,
        [Tensor::flag("return_perf_metrics")]
    );
    assert_eq!(
        task.target_only_outputs,
        ["acceptance_rate", "arrival_time_ns"]
    );
    assert_eq!(task.draft_tokens, 4);
}

#[test]
fn flag_may_have_any_type() {
    for (given, expected) in [
        (int("stream", 2), true),
        (int("stream", 0), false),
        (float("stream", -0.0), false),
        (float("stream", 0.5), true),
        (
            Tensor::new("stream", DataType::Bool, &[1, 0], vec![]),
            false,
        ),
        (texts("stream", &[&["x"]]), true),
        (texts("stream", &[&[""]]), false),
    ] {
        assert_eq!(task(vec![given.clone()]).stream, expected, "{given:?}");
    }
}

#[test]
fn acceptance_by_logits_defaults_to_that_of_the_server() {
    let by_logits = Capabilities {
        use_draft_logits: true,
        ..server()
    };
    assert!(parse_one(vec![], &by_logits).0.use_draft_logits);
    assert!(
        !parse_one(vec![flag("use_draft_logits", false)], &by_logits)
            .0
            .use_draft_logits
    );
}

#[test]
fn sampling_inputs_keep_the_types_of_the_client() {
    let half = Tensor::new("top_p", DataType::Fp16, &[1], vec![0, 0x38]);
    let task = task(vec![
        Tensor::int32("top_k", &[1], &[5]),
        half,
        float("temperature", 0.5),
        float("length_penalty", 1.5),
        float("repetition_penalty", 2.5),
        float("presence_penalty", 3.5),
        float("frequency_penalty", 4.5),
    ]);
    let expected = [
        int("runtime_top_k", 5),
        Tensor::new("runtime_top_p", DataType::Fp16, &[1, 1], vec![0, 0x38]),
        float("temperature", 0.5),
        float("len_penalty", 1.5),
        float("repetition_penalty", 2.5),
        float("presence_penalty", 3.5),
        float("frequency_penalty", 4.5),
        int("end_id", 90),
        int("pad_id", 91),
    ];
    assert_eq!(task.common, expected);
}

#[test]
fn end_and_padding_tokens_of_the_client_are_used() {
    let task = task(vec![int("end_id", -1), int("pad_id", 7)]);
    assert_eq!(task.end_id, -1);
    assert_eq!(task.common, [int("end_id", -1), int("pad_id", 7)]);
}

#[test]
fn stop_words_bad_words_and_bias() {
    let weights = Tensor::fp32("embedding_bias_weights", &[1, 2], &[4.0, -1.0]);
    let task = task(vec![
        texts("stop_words", &[&["ab", "", "c"]]),
        texts("bad_words", &[&["d", ""]]),
        texts("embedding_bias_words", &[&["a", "ba"]]),
        weights,
    ]);
    assert_eq!(task.stop_texts, ["ab", "c"]);
    assert_eq!(task.stop_words, [vec![1, 2], vec![3]]);
    let stop = Tensor::int32("stop_words_list", &[1, 2, 3], &[1, 2, 3, 2, 3, -1]);
    assert_eq!(named(&task.common, "stop_words_list"), Some(&stop));
    let bad = Tensor::int32("bad_words_list", &[1, 2, 1], &[4, 1]);
    assert_eq!(named(&task.common, "bad_words_list"), Some(&bad));
    let bias = named(&task.common, "embedding_bias").expect("a bias");
    assert_eq!(bias.shape, [1, 96]);
    assert_eq!(bias.floats()[..4], [0.0, 3.0, -1.0, 0.0]);
}

#[test]
fn empty_stop_words_and_bad_words_are_ignored() {
    let given = vec![
        texts("stop_words", &[&[""]]),
        texts("bad_words", &[&["", ""]]),
    ];
    assert_eq!(task(given).common.len(), 2);
}

#[test]
fn answer_ends_where_the_sequence_ends() {
    for (max_seq_len, expected) in [(10, 8), (9, 7), (3, 1), (0, 8)] {
        let server = Capabilities {
            max_seq_len,
            ..server()
        };
        assert_eq!(
            parse_one(vec![], &server).0.max_tokens,
            expected,
            "{max_seq_len}"
        );
    }
}

#[test]
fn longer_minimum_is_used() {
    let task = task(vec![int("min_length", 3), int("min_tokens", 5)]);
    assert_eq!(task.min_tokens, 5);
}

#[test]
fn draft_length_of_the_client_is_not_adaptive() {
    for length in [0, 1, 8] {
        let task = task(vec![int("num_draft_tokens", length)]);
        assert_eq!((task.draft_tokens, task.adaptive), (length as usize, false));
    }
    let plain = Capabilities {
        draft_tokens: 0,
        ..server()
    };
    assert!(!parse_one(vec![], &plain).0.adaptive);
}

#[test]
fn only_sampled_answers_have_a_seed() {
    let cases = [
        (vec![], None),
        (vec![int("max_tokens", 4)], None),
        (vec![int("top_k", 5)], Some(0)),
        (vec![float("top_p", 0.5)], Some(0)),
        (vec![float("temperature", 0.5)], Some(0)),
        (vec![int("seed", 9)], Some(9)),
        (vec![int("seed", -9)], Some(0)),
        (vec![long("random_seed", u64::MAX)], Some(u64::MAX)),
    ];
    for (minimum, name) in [("min_length", "random_seed"), ("min_tokens", "seed")] {
        let server = Capabilities {
            min_tokens_name: minimum,
            ..server()
        };
        for (given, seed) in &cases {
            let task = parse_one(given.clone(), &server).0;
            assert_eq!((task.seed, task.seed_name), (*seed, name));
            assert_eq!(task.min_tokens_name, minimum);
            for name in ["seed", "random_seed"] {
                assert_eq!(named(&task.common, name), None);
            }
        }
    }
}

#[test]
fn prompts_of_one_request_have_their_own_values() {
    let given = vec![
        texts("text_input", &[&["ab"], &["c"]]),
        Tensor::int32("max_tokens", &[2, 1], &[6, 7]),
        texts("stop_words", &[&["x", "y"], &["zz", ""]]),
        Tensor::new("return_log_probs", DataType::Bool, &[2], vec![0, 1]),
        Tensor::fp32("top_p", &[2, 1], &[0.25, 0.75]),
        Tensor::int32("lora_config", &[2, 1, 3], &[1, 2, 3, 4, 5, 6]),
        Tensor::new(
            "guided_decoding_guide",
            DataType::Bytes,
            &[2, 1],
            packed(&[b"first", b"second"]),
        ),
    ];
    let parsed = parse(&request(given), &server(), &Letters).expect("two prompts");
    let [first, second] = &parsed.tasks[..] else {
        panic!("not two tasks");
    };
    assert_eq!(
        (&first.prompt[..], &second.prompt[..]),
        (&[1, 2][..], &[3][..])
    );
    assert_eq!((first.max_tokens, second.max_tokens), (6, 7));
    assert_eq!(first.stop_texts, ["x", "y"]);
    assert_eq!(second.stop_texts, ["zz"]);
    assert!(!first.log_probs && second.log_probs);
    let chance = |value| Some(float("runtime_top_p", value));
    assert_eq!(named(&first.common, "runtime_top_p").cloned(), chance(0.25));
    assert_eq!(
        named(&second.common, "runtime_top_p").cloned(),
        chance(0.75)
    );
    let config = Tensor::int32("lora_config", &[1, 1, 3], &[4, 5, 6]);
    assert_eq!(second.target_only_inputs[0], config);
    assert_eq!(
        second.target_only_inputs[1],
        texts("guided_decoding_guide", &[&["second"]])
    );
}

#[test]
fn scope_is_read_and_an_empty_one_is_none() {
    let named = |name: &str| task(vec![texts("lookup_scope", &[&[name]])]).lookup_scope;
    assert_eq!(named("tenant 7"), Some("tenant 7".to_owned()));
    assert_eq!(named(""), None);
    assert_eq!(task(vec![]).lookup_scope, None);
}
