//! The wire format: numbered fields, four kinds of payload.

/// The payload of one field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Field<'a> {
    Integer(u64),
    Eight([u8; 8]),
    Bytes(&'a [u8]),
    Four([u8; 4]),
}

/// The bytes end in the middle of something, or use what Kubernetes never writes.
#[derive(Debug, PartialEq)]
pub(super) struct Broken;

/// Reads field after field.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    fn varint(&mut self) -> Result<u64, Broken> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (first, rest) = self.rest.split_first().ok_or(Broken)?;
            self.rest = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Broken)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Broken> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Broken)?;
        self.rest = rest;
        Ok(taken)
    }

    fn field(&mut self) -> Result<(u64, Field<'a>), Broken> {
        let tag = self.varint()?;
        let field = match tag & 7 {
            0 => Field::Integer(self.varint()?),
            1 => Field::Eight(self.take(8)?.try_into().map_err(|_| Broken)?),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Broken)?;
                Field::Bytes(self.take(length)?)
            }
            5 => Field::Four(self.take(4)?.try_into().map_err(|_| Broken)?),
            _ => return Err(Broken),
        };
        Ok((tag >> 3, field))
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<(u64, Field<'a>), Broken>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}
