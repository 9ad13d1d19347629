//! mergo's way to merge maps, with its oddities, which charts depend on.
//!
//! Nothing is copied: what the target lacks it shares with the source afterwards.

use super::default::empty;
use crate::context::{Context, Failure};
use crate::error::Limit;
use crate::value::{Map, Value};

/// Whether the source wins where both have a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Overwrite {
    No,
    Yes,
}

/// Go would run out of stack on maps that contain themselves.
const MAX_DEPTH: usize = 500;

pub fn merge(
    ctx: &Context<'_>,
    target: &Map,
    source: &Map,
    overwrite: Overwrite,
    depth: usize,
) -> Result<(), Failure> {
    if depth > MAX_DEPTH {
        return Err(Limit::Nesting(MAX_DEPTH).into());
    }
    if target.same(source) {
        return Ok(());
    }
    let entries = source.snapshot();
    ctx.work(entries.len() as u64)?;
    for (key, value) in entries {
        let present = target.get_bytes(key.as_bytes());
        if value.is_nil() {
            // A nil never fills a gap, but it does overwrite.
            if overwrite == Overwrite::Yes {
                target.set(key, Value::Nil);
            }
            continue;
        }
        if let (Some(Value::Map(inner)), Value::Map(from)) = (&present, &value) {
            merge(ctx, inner, from, overwrite, depth + 1)?;
            // Two maps are never replaced, unless both are empty.
            if !inner.is_empty() {
                continue;
            }
        }
        let takes = match &present {
            None => true,
            Some(present) => empty(present) || overwrite == Overwrite::Yes,
        };
        if takes {
            ctx.session().grow(80)?;
            ctx.session().grew(target, &value);
            target.set(key, value);
        }
    }
    Ok(())
}
