//! The shortest way from one text to another, line by line.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Insert,
    Delete,
}

/// More lines than this are told as one deletion and one insertion: the search takes the square of it.
const MOST: usize = 4000;

/// Runs of deleted and inserted lines, in order; equal lines are left out. A deletion comes before the insertion beside it.
pub(super) fn changes(from: &str, to: &str) -> Vec<(Change, String)> {
    let (from, to): (Vec<&str>, Vec<&str>) = (split(from), split(to));
    let start = from.iter().zip(&to).take_while(|(one, other)| one == other).count();
    let (from, to) = (&from[start..], &to[start..]);
    let end = from.iter().rev().zip(to.iter().rev()).take_while(|(one, other)| one == other).count();
    let (from, to) = (&from[..from.len() - end], &to[..to.len() - end]);
    let steps = if from.len() > MOST || to.len() > MOST {
        let deleted = from.iter().map(|line| (Some(Change::Delete), *line));
        deleted.chain(to.iter().map(|line| (Some(Change::Insert), *line))).collect()
    } else {
        steps(from, to)
    };
    runs(&steps)
}

/// Lines with their line ends.
fn split(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

/// By the longest common subsequence.
fn steps<'a>(from: &[&'a str], to: &[&'a str]) -> Vec<(Option<Change>, &'a str)> {
    let mut length = vec![vec![0_u32; to.len() + 1]; from.len() + 1];
    for (i, one) in from.iter().enumerate().rev() {
        for (j, other) in to.iter().enumerate().rev() {
            length[i][j] =
                if one == other { length[i + 1][j + 1] + 1 } else { length[i + 1][j].max(length[i][j + 1]) };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut steps = Vec::new();
    while i < from.len() || j < to.len() {
        if i < from.len() && j < to.len() && from[i] == to[j] {
            steps.push((None, from[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == to.len() || (i < from.len() && length[i + 1][j] >= length[i][j + 1]) {
            steps.push((Some(Change::Delete), from[i]));
            i += 1;
        } else {
            steps.push((Some(Change::Insert), to[j]));
            j += 1;
        }
    }
    steps
}

fn runs(steps: &[(Option<Change>, &str)]) -> Vec<(Change, String)> {
    let mut found = Vec::new();
    let (mut deleted, mut inserted) = (String::new(), String::new());
    let mut flush = |deleted: &mut String, inserted: &mut String| {
        for (change, text) in [(Change::Delete, deleted), (Change::Insert, inserted)] {
            if !text.is_empty() {
                found.push((change, std::mem::take(text)));
            }
        }
    };
    for (change, line) in steps {
        match change {
            Some(Change::Delete) => deleted.push_str(line),
            Some(Change::Insert) => inserted.push_str(line),
            None => flush(&mut deleted, &mut inserted),
        }
    }
    flush(&mut deleted, &mut inserted);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changed_is_told_deletions_first() {
        let found = changes("a\nb\nc\n", "a\nx\nc\nd\n");
        let want = [(Change::Delete, "b\n"), (Change::Insert, "x\n"), (Change::Insert, "d\n")];
        assert_eq!(found, want.map(|(change, text)| (change, text.to_owned())));
        assert_eq!(changes("a\n", "a\n"), []);
    }
}
