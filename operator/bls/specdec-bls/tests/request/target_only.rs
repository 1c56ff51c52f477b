//! Inputs that need target-only decoding.

use triton::{DataType, Tensor};
use triton_specdec::request::Capabilities;

use crate::client::{flag, int, long, parse_one, server, task, texts, try_parse};

#[test]
fn target_only_inputs_fall_back() {
    for (given, reason) in [
        (flag("return_context_logits", true), "context_logits"),
        (flag("return_generation_logits", true), "generation_logits"),
        (int("prompt_vocab_size", 3), "prompt_table"),
        (long("lora_task_id", 3), "lora"),
        (
            texts("guided_decoding_guide_type", &[&["json"]]),
            "guided_decoding",
        ),
    ] {
        let (task, fallback) = parse_one(vec![given.clone()], &server());
        assert_eq!(
            (fallback, task.draft_tokens, task.adaptive),
            (reason, 0, false)
        );
        assert_eq!(task.target_only_inputs.len(), 1);
        assert_eq!(task.target_only_inputs[0].name, given.name);
        let without_draft = vec![given, int("num_draft_tokens", 0)];
        assert_eq!(
            parse_one(without_draft, &server()).1,
            "",
            "a client that sets 0 draft tokens is no fallback"
        );
    }
    assert_eq!(
        parse_one(vec![flag("return_context_logits", false)], &server()).1,
        ""
    );
}

#[test]
fn server_without_speculation_never_falls_back() {
    let alone = Capabilities {
        draft_tokens: 0,
        drafts: false,
        has_draft_model: false,
        ..server()
    };
    let (task, fallback) = parse_one(vec![long("lora_task_id", 3)], &alone);
    assert_eq!((fallback, task.target_only_inputs.len()), ("", 1));
}

#[test]
fn logits_and_statistics_are_requested_from_the_target() {
    let task = task(vec![
        flag("return_context_logits", true),
        flag("return_generation_logits", true),
        flag("return_kv_cache_reuse_stats", true),
    ]);
    let expected = [
        "return_context_logits",
        "return_generation_logits",
        "return_kv_cache_reuse_stats",
    ];
    assert_eq!(task.target_only_inputs, expected.map(Tensor::flag));
    assert_eq!(
        task.target_only_outputs,
        [
            "context_logits",
            "generation_logits",
            "acceptance_rate",
            "arrival_time_ns"
        ]
    );
}

#[test]
fn tensors_keep_their_shape() {
    let weights = Tensor::new(
        "lora_weights",
        DataType::Fp16,
        &[1, 2, 3],
        (0..12).collect(),
    );
    let guide = texts("guided_decoding_guide", &[&["{}"]]);
    let task = task(vec![
        guide.clone(),
        weights.clone(),
        long("lora_task_id", 3),
    ]);
    assert_eq!(
        task.target_only_inputs,
        [long("lora_task_id", 3), weights, guide]
    );
}

#[test]
fn reason_of_the_first_prompt_counts() {
    for (flags, fallback) in [([1, 0], "context_logits"), ([0, 1], "")] {
        let given = vec![
            texts("text_input", &[&["a"], &["b"]]),
            Tensor::int32("max_tokens", &[2, 1], &[6, 7]),
            Tensor::new(
                "return_context_logits",
                DataType::Bool,
                &[2],
                flags.to_vec(),
            ),
        ];
        let parsed = try_parse(given, &server()).expect("two prompts");
        assert_eq!(parsed.fallback, fallback);
    }
}
