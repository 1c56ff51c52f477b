//! Parts of answers as the tensors of Triton responses.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::part::Part;
use crate::task::Task;
use triton::{Tensor, packed};

/// Outputs that the configuration has and the client asked for.
///
/// Triton drops what nobody asked for; it is not even made.
pub fn wanted<'a>(
    declared: &BTreeSet<String>,
    requested: impl IntoIterator<Item = &'a str>,
) -> BTreeSet<String> {
    let requested = requested.into_iter();
    let known = requested.filter(|name| declared.contains(*name));
    known.map(str::to_owned).collect()
}

/// Outputs of one part, each with a leading batch dimension of one.
///
/// `text` is the part's own, or the whole text so far; `row` is the prompt's place in the request.
pub fn tensors(
    text: &str,
    row: usize,
    task: &Task,
    part: Part,
    outputs: &BTreeSet<String>,
) -> Vec<Tensor> {
    let mut own = vec![
        Tensor::text("text_output", text),
        Tensor::scalar("batch_index", row as i32),
        Tensor::scalar("sequence_index", 0),
    ];
    if task.log_probs {
        let count = part.log_probs.len() as i64;
        own.push(Tensor::fp32(
            "cum_log_probs",
            &[1, 1],
            &[part.cum_log_prob as f32],
        ));
        own.push(Tensor::fp32(
            "output_log_probs",
            &[1, 1, count],
            &part.log_probs,
        ));
    }
    if task.statistics {
        let rate = match part.drafted {
            0 => 0.0,
            drafted => part.accepted as f64 / drafted as f64,
        };
        own.push(Tensor::fp32("acceptance_rate", &[1, 1], &[rate as f32]));
        own.push(Tensor::scalar(
            "total_accepted_draft_tokens",
            part.accepted as i32,
        ));
        own.push(Tensor::scalar("total_draft_tokens", part.drafted as i32));
    }
    if task.input_count {
        own.push(Tensor::scalar("num_input_tokens", task.prompt.len() as i32));
    }
    if task.output_count {
        own.push(Tensor::scalar("num_output_tokens", part.tokens as i32));
    }
    // The target has figures of its own for its one call; ours are the answer's.
    let mut extras = part.extras;
    extras.retain(|extra| own.iter().all(|one| one.name != extra.name));
    own.append(&mut extras);
    own.retain(|one| outputs.contains(one.name.as_ref()));
    own
}

/// Outputs of several prompts as one batch; zeros fill what is shorter or was not asked for.
///
/// Tensors of one name that cannot be laid side by side are an error: one sentence.
pub fn stacked(mut rows: Vec<Vec<Tensor>>) -> Result<Vec<Tensor>, String> {
    if rows.len() == 1 {
        return Ok(rows.remove(0));
    }
    let mut found: Vec<Tensor> = Vec::new();
    for first in rows.iter().flatten() {
        if found.iter().all(|one| one.name != first.name) {
            let named = |row: &'_ Vec<Tensor>| row.iter().position(|one| one.name == first.name);
            let given = rows.iter().map(|row| named(row).map(|place| &row[place]));
            found.push(stack(first, &given.collect::<Vec<_>>())?);
        }
    }
    Ok(found)
}

fn stack(first: &Tensor, given: &[Option<&Tensor>]) -> Result<Tensor, String> {
    let mut shape = first.shape.clone();
    for one in given.iter().flatten() {
        let alike = one.kind == first.kind && one.shape.len() == shape.len();
        if !alike || one.shape.first() != Some(&1) {
            return Err(format!(
                "output {} is {:?} {:?} for one prompt and {:?} {:?} for another",
                one.name, first.kind, first.shape, one.kind, one.shape
            ));
        }
        for (size, own) in shape.iter_mut().zip(&one.shape) {
            *size = (*size).max(*own);
        }
    }
    let data = match first.kind.width() {
        Some(width) => filled(&shape[1..], given, width, 0, |one| Cow::from(&one.data))?,
        None => {
            let nothing: &[u8] = &[];
            packed(&filled(&shape[1..], given, 1, nothing, |one| {
                Cow::from(one.strings())
            })?)
        }
    };
    shape[0] = given.len() as i64;
    Ok(Tensor::new(first.name.clone(), first.kind, &shape, data))
}

/// All prompts' values behind each other, each in a block of the same shape.
///
/// `unit` values make an element: the bytes of a number, or one string.
fn filled<'a, T: Copy + 'a>(
    shape: &[i64],
    given: &[Option<&'a Tensor>],
    unit: usize,
    zero: T,
    read: impl Fn(&'a Tensor) -> Cow<'a, [T]>,
) -> Result<Vec<T>, String> {
    let block = sizes(shape, unit);
    let values = |sizes: &[usize]| sizes.iter().try_fold(1_usize, |all, n| all.checked_mul(*n));
    let each = values(&block);
    let all = each.and_then(|each| each.checked_mul(given.len()));
    let (Some(each), Some(all)) = (each, all) else {
        return Err(format!(
            "outputs of the shape {shape:?} are more than fit in memory"
        ));
    };
    let mut data = vec![zero; all];
    for (row, one) in given.iter().enumerate() {
        let Some(one) = one else { continue };
        let own = sizes(&one.shape[1..], unit);
        let from = read(one);
        if values(&own) != Some(from.len()) {
            return Err(format!(
                "output {} has {} bytes, which is not what its shape {:?} needs",
                one.name,
                one.data.len(),
                one.shape
            ));
        }
        place(&from, &own, &mut data[row * each..(row + 1) * each], &block);
    }
    Ok(data)
}

fn sizes(shape: &[i64], unit: usize) -> Vec<usize> {
    let sizes = shape.iter().map(|size| usize::try_from(*size).unwrap_or(0));
    sizes.chain([unit]).collect()
}

/// Copy a block into the first corner of one that is at least as long in every dimension.
fn place<T: Copy>(from: &[T], own: &[usize], to: &mut [T], block: &[usize]) {
    if from.is_empty() {
        return;
    }
    match (own, block) {
        ([count, own @ ..], [wide, block @ ..]) if !own.is_empty() => {
            let (step, stride) = (from.len() / count, to.len() / wide);
            for index in 0..*count {
                let from = &from[index * step..(index + 1) * step];
                place(
                    from,
                    own,
                    &mut to[index * stride..(index + 1) * stride],
                    block,
                );
            }
        }
        _ => to[..from.len()].copy_from_slice(from),
    }
}
