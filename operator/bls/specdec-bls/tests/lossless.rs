//! Speculation is lossless: greedy answers equal those of the target alone, for seeded random
//! requests and for every order in which the engines may respond. Each kind of end occurs often.

use support::changing_policy::ChangingPolicy;
use support::numbers::Numbers;
use support::{END, Letters, Pipelined, Run, VOCABULARY, target_only_text};
use triton::{DataType, Tensor, packed};
use triton_specdec::request::task::Task;
use triton_specdec::request::{Capabilities, parse};
use triton_specdec::tokenizer::Tokenizer;

mod support;

const CASES: u32 = 1500;

fn text(numbers: &mut Numbers, least: usize, most: usize) -> String {
    let length = numbers.between(least, most);
    let token = |_| numbers.between(1, VOCABULARY as usize - 1) as i32;
    Letters.decode(&(0..length).map(token).collect::<Vec<_>>())
}

/// The task of a request for one prompt, with random options.
fn request(numbers: &mut Numbers) -> Task {
    let mut given = vec![
        Tensor::text("text_input", &[1, 1], &text(numbers, 1, 20)),
        Tensor::scalar("max_tokens", numbers.between(1, 60) as i32),
        Tensor::scalar("num_draft_tokens", numbers.between(0, 8) as i32),
    ];
    let mut sometimes_add = |numbers: &mut Numbers, tensor: Tensor| {
        if numbers.between(0, 2) == 0 {
            given.push(tensor);
        }
    };
    let minimum = numbers.between(1, 30) as i32;
    sometimes_add(numbers, Tensor::scalar("min_length", minimum));
    sometimes_add(numbers, Tensor::flag("stream"));
    sometimes_add(numbers, Tensor::flag("return_log_probs"));
    sometimes_add(numbers, Tensor::scalar("end_id", END));
    let stop_words = [text(numbers, 1, 2), text(numbers, 1, 1)];
    let bytes: Vec<&[u8]> = stop_words.iter().map(|word| word.as_bytes()).collect();
    let stop_words = Tensor::new("stop_words", DataType::Bytes, &[1, 2], packed(&bytes));
    sometimes_add(numbers, stop_words);
    let server = Capabilities {
        draft_tokens: 4,
        max_draft_tokens: 8,
        max_seq_len: 512,
        drafts: true,
        has_draft_model: true,
        streams: true,
        use_draft_logits: false,
        min_tokens_name: "min_length",
        target_outputs: vec![],
    };
    let mut parsed = parse(&given, &server, &Letters).expect("a request that can be served");
    Task {
        exclude_input: true,
        ..parsed.tasks.remove(0)
    }
}

#[test]
fn greedy_answers_equal_those_of_the_target_alone() {
    let (mut by_end, mut by_length, mut by_word) = (0, 0, 0);
    let (mut accepted, mut pipelined, mut streams) = (0, 0, 0);
    for seed in 0..CASES {
        let mut numbers = Numbers::new(seed);
        let task = request(&mut numbers);
        let other = numbers.between(0, 2) as u64;
        let mut run = Run::new(seed.into(), u64::from(seed) + other);
        run.pipelined = [
            Pipelined::Off,
            Pipelined::Early,
            Pipelined::Late,
            Pipelined::Rejected,
            Pipelined::Anytime(seed),
        ][numbers.between(0, 4)];
        if task.adaptive && numbers.between(0, 1) == 0 {
            run.policy = Some(ChangingPolicy::new(seed).0);
        }
        let outcome = run.finish(task.clone());
        let expected = target_only_text(&task, seed.into());
        assert_eq!(outcome.text(), expected, "seed {seed}: {task:?}");
        let tokens: usize = outcome.parts.iter().map(|part| part.tokens).sum();
        assert_eq!(tokens, expected.len());
        let stopped = task.stop_texts.iter().any(|word| expected.ends_with(word));
        by_word += usize::from(stopped);
        by_length += usize::from(!stopped && tokens == task.max_tokens);
        by_end += usize::from(!stopped && tokens < task.max_tokens);
        accepted += outcome.counts.accepted;
        pipelined += outcome.counts.pipelined_rounds;
        streams += usize::from(task.stream);
    }
    // Every option must have had an effect, or the comparison proves nothing.
    let cases = CASES as usize;
    let ends = [by_end, by_length, by_word];
    assert!(ends.iter().all(|count| *count > cases / 20), "{ends:?}");
    assert!(accepted > cases && pipelined > cases / 2);
    assert!(streams > cases / 5 && streams < cases / 2);
}
