//! The settings that a model's configuration becomes, and the configurations that are refused.

use serde_json::{Value, json};
use triton_specdec::batching::waits::Synchronization;
use triton_specdec::config::{Adaptive, Settings};

/// A configuration with a draft, where these parameters replace or extend the usual ones.
fn config(parameters: &[(&str, &str)]) -> Value {
    let mut whole = json!({
        "name": "tensorrt_llm_bls",
        "backend": "specdec",
        "max_batch_size": 16,
        "model_transaction_policy": {"decoupled": true},
        "input": [{"name": "text_input"}, {"name": "min_length"}],
        "output": [
            {"name": "text_output", "data_type": "TYPE_STRING", "dims": [-1]},
            {"name": "context_logits"},
            {"name": "num_output_tokens"},
            {"name": "kv_cache_reused_blocks"},
            {"name": "acceptance_rate"},
        ],
        "parameters": {
            "accumulate_tokens": {"string_value": "false"},
            "tensorrt_llm_model_name": {"string_value": "target"},
            "tensorrt_llm_draft_model_name": {"string_value": "draft"},
            "num_draft_tokens": {"string_value": "4"},
            "max_draft_tokens": {"string_value": "8"},
            "draft_length_policy": {"string_value": "Fixed"},
            "min_draft_length": {"string_value": ""},
            "max_draft_length": {"string_value": ""},
            "draft_ahead": {"string_value": "2"},
            "max_seq_len": {"string_value": "512"},
            "use_draft_logits": {"string_value": "true"},
            "max_in_flight": {"string_value": "32"},
            "rows_per_call": {"string_value": "8"},
            "synchronize_rounds": {"string_value": "Always"},
            "tokenizer_dir": {"string_value": "/models/text"},
            "skip_special_tokens": {"string_value": "False"},
            "add_special_tokens": {"string_value": "true"},
        },
    });
    for (key, value) in parameters {
        whole["parameters"][key] = json!({"string_value": value});
    }
    whole
}

fn read(config: &Value) -> Settings {
    Settings::read(&config.to_string()).expect("a configuration that can be served")
}

fn with(parameters: &[(&str, &str)]) -> Settings {
    read(&config(parameters))
}

fn refused(parameters: &[(&str, &str)]) -> String {
    let error = Settings::read(&config(parameters).to_string());
    error
        .expect_err("a configuration that cannot be served")
        .to_string()
}

#[test]
fn every_parameter_is_read() {
    let settings = with(&[]);
    assert_eq!(settings.tokenizer_dir, "/models/text");
    assert!(settings.add_special_tokens && !settings.skip_special_tokens);
    assert_eq!(settings.target, "target");
    assert_eq!(settings.draft.as_deref(), Some("draft"));
    assert_eq!(
        (settings.pipelined_sequences, settings.max_in_flight),
        (2, 32)
    );
    assert_eq!((settings.max_batch_size, settings.rows_per_call), (16, 8));
    assert_eq!(settings.synchronization, Synchronization::Always);
    assert!(!settings.accumulate_tokens && settings.decoupled);
    assert_eq!((settings.adaptive, settings.declared.len()), (None, 5));
    let server = settings.capabilities;
    assert_eq!((server.draft_tokens, server.max_draft_tokens), (4, 8));
    assert_eq!(server.max_seq_len, 512);
    assert!(server.has_draft_model && server.streams && server.use_draft_logits);
    assert_eq!(
        (server.min_tokens_name, server.seed_name()),
        ("min_length", "random_seed")
    );
    assert_eq!(
        server.target_outputs,
        ["acceptance_rate", "kv_cache_reused_blocks"]
    );
}

#[test]
fn call_has_one_row_unless_the_engines_take_more() {
    assert_eq!(with(&[("rows_per_call", "")]).rows_per_call, 1);
    assert_eq!(with(&[("rows_per_call", "17")]).rows_per_call, 16);
    let mut unary = config(&[]);
    unary["model_transaction_policy"]["decoupled"] = json!(false);
    assert_eq!(read(&unary).rows_per_call, 1);
    assert_eq!(
        refused(&[("rows_per_call", "0")]),
        "rows_per_call is 0: set it to 1 or more"
    );
}

#[test]
fn rounds_are_synchronized_as_configured() {
    for (value, expected) in [
        ("", Synchronization::Measured),
        ("Measured", Synchronization::Measured),
        ("Always", Synchronization::Always),
        ("Never", Synchronization::Never),
    ] {
        let settings = with(&[("synchronize_rounds", value)]);
        assert_eq!(settings.synchronization, expected);
    }
    assert_eq!(
        refused(&[("synchronize_rounds", "yes")]),
        "synchronize_rounds is yes: set it to Measured, Always or Never"
    );
}

#[test]
fn newer_release_has_other_names() {
    let mut newer = config(&[]);
    newer["input"] = json!([{"name": "min_tokens"}]);
    let server = read(&newer).capabilities;
    assert_eq!(
        (server.min_tokens_name, server.seed_name()),
        ("min_tokens", "seed")
    );
}

#[test]
fn missing_parameters_have_defaults() {
    let little = json!({"parameters": {"tokenizer_dir": {"string_value": "/t"}}});
    let settings = read(&little);
    assert_eq!(
        (settings.target.as_str(), settings.draft),
        ("tensorrt_llm", None)
    );
    assert_eq!(
        (settings.pipelined_sequences, settings.max_in_flight),
        (0, 16)
    );
    assert_eq!(settings.max_batch_size, 1);
    assert!(settings.add_special_tokens && settings.skip_special_tokens);
    assert!(
        !settings.decoupled
            && !settings.capabilities.streams
            && !settings.capabilities.use_draft_logits
    );
    assert_eq!(settings.capabilities.max_draft_tokens, 0);
    assert!(settings.declared.is_empty());
}

#[test]
fn unfilled_parameter_has_its_default() {
    let settings = with(&[("max_in_flight", "${bls_instances}"), ("max_seq_len", "")]);
    assert_eq!(
        (settings.max_in_flight, settings.capabilities.max_seq_len),
        (16, 0)
    );
}

#[test]
fn lookups_draft_without_a_draft_model() {
    let settings = with(&[
        ("tensorrt_llm_draft_model_name", ""),
        ("lookup_min_match", "3"),
    ]);
    let server = settings.capabilities;
    assert_eq!((settings.lookup_min_match, settings.draft), (Some(3), None));
    assert!(server.drafts && !server.has_draft_model);
    assert_eq!((server.draft_tokens, server.max_draft_tokens), (4, 8));
    for off in ["", "0"] {
        assert_eq!(with(&[("lookup_min_match", off)]).lookup_min_match, None);
    }
}

#[test]
fn memory_is_of_lookups_and_off_by_default() {
    let megabytes = ("lookup_memory_megabytes", "3");
    let both = with(&[("lookup_min_match", "3"), megabytes]);
    assert_eq!(both.lookup_memory_bytes, Some(3 << 20));
    assert_eq!(with(&[megabytes]).lookup_memory_bytes, None);
    assert_eq!(with(&[("lookup_min_match", "3")]).lookup_memory_bytes, None);
}

#[test]
fn draft_parameters_need_a_draft() {
    let adaptive = ("draft_length_policy", "Adaptive");
    let settings = with(&[("tensorrt_llm_draft_model_name", ""), adaptive]);
    assert_eq!(
        (
            settings.draft,
            settings.pipelined_sequences,
            settings.adaptive
        ),
        (None, 0, None)
    );
    assert!(!settings.capabilities.drafts);
    assert_eq!(
        (
            settings.capabilities.draft_tokens,
            settings.capabilities.max_draft_tokens
        ),
        (0, 8)
    );
}

#[test]
fn boolean_parameters_accept_several_values() {
    for (word, accumulates, logits, adds) in [
        ("true", true, true, true),
        ("TRUE", true, true, true),
        ("1", true, false, true),
        ("yes", true, false, true),
        ("no", false, false, false),
        (" F ", false, false, false),
        ("0", false, false, false),
        ("maybe", false, false, true),
        ("", false, false, true),
    ] {
        let settings = with(&[
            ("accumulate_tokens", word),
            ("use_draft_logits", word),
            ("add_special_tokens", word),
        ]);
        assert_eq!(settings.accumulate_tokens, accumulates, "{word:?}");
        assert_eq!(settings.capabilities.use_draft_logits, logits, "{word:?}");
        assert_eq!(settings.add_special_tokens, adds, "{word:?}");
    }
}

#[test]
fn bounds_of_the_adaptive_policy() {
    let adaptive = ("draft_length_policy", "Adaptive");
    let bounds = |least, most| {
        Some(Adaptive {
            least,
            most,
            start: 4,
        })
    };
    assert_eq!(with(&[adaptive]).adaptive, bounds(0, 8));
    let own = [
        adaptive,
        ("min_draft_length", "2"),
        ("max_draft_length", "6"),
    ];
    assert_eq!(with(&own).adaptive, bounds(2, 6));
    assert_eq!(with(&[adaptive, ("num_draft_tokens", "0")]).adaptive, None);
    assert_eq!(
        refused(&[adaptive, ("min_draft_length", "9")]),
        "min_draft_length is 9, more than max_draft_length 8: lower it"
    );
}

#[test]
fn value_that_is_no_number_is_refused() {
    for key in [
        "num_draft_tokens",
        "max_draft_tokens",
        "max_seq_len",
        "draft_ahead",
    ] {
        for value in ["four", "-1", "1.5", "99999999999"] {
            assert_eq!(
                refused(&[(key, value)]),
                format!("{key} is {value}: set it to a whole number of 0 or more")
            );
        }
    }
    assert_eq!(
        refused(&[("max_in_flight", "0")]),
        "max_in_flight is 0: set it to 1 or more"
    );
}

#[test]
fn configuration_that_is_no_json_is_refused() {
    assert_eq!(
        refused(&[("tokenizer_dir", "")]),
        "tokenizer_dir is empty: point it at a directory with tokenizer.json"
    );
    let error = Settings::read("{")
        .expect_err("half a configuration")
        .to_string();
    assert!(
        error.starts_with("the model's configuration is no JSON: "),
        "{error}"
    );
    for other in ["[]", "3", "{\"parameters\": [], \"tokenizer_dir\": 1}"] {
        assert!(Settings::read(other).is_err());
    }
}
