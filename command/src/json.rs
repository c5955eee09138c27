//! A writer of JSON lines. Written by hand, because a dump writes millions of objects; JSON is read
//! by serde_json.

use std::io::Write as _;

use data_encoding::BASE64;

/// A JSON object that is being written, as text.
#[derive(Default)]
pub struct Object {
    text: Vec<u8>,
}

impl Object {
    pub fn new() -> Object {
        Object::default()
    }

    /// Discards the content and starts a new object, which reuses the buffer.
    pub fn clear(&mut self) -> &mut Object {
        self.text.clear();
        self
    }

    fn name(&mut self, name: &str) {
        self.text.push(if self.text.is_empty() { b'{' } else { b',' });
        self.string(name);
        self.text.push(b':');
    }

    fn string(&mut self, string: &str) {
        let _ = serde_json::to_writer(&mut self.text, string); // to a Vec: cannot fail
    }

    pub fn text(&mut self, name: &str, value: &str) -> &mut Object {
        self.name(name);
        self.string(value);
        self
    }

    /// Adds a field with bytes: as a string if they are UTF-8, else in base64, with `_base64`
    /// appended to `name`.
    pub fn bytes(&mut self, name: &str, value: &[u8]) -> &mut Object {
        if let Ok(text) = std::str::from_utf8(value) {
            return self.text(name, text);
        }
        let mut encoded = name.to_owned();
        encoded.push_str("_base64");
        self.text(&encoded, &BASE64.encode(value))
    }

    pub fn number(&mut self, name: &str, value: impl Into<i128>) -> &mut Object {
        self.name(name);
        let _ = write!(self.text, "{}", value.into());
        self
    }

    pub fn bool(&mut self, name: &str, value: bool) -> &mut Object {
        self.raw(name, if value { "true" } else { "false" })
    }

    /// Adds a field with a number, or with `null` if `value` is `None`.
    pub fn optional(&mut self, name: &str, value: Option<impl Into<i128>>) -> &mut Object {
        match value {
            Some(value) => self.number(name, value),
            None => self.raw(name, "null"),
        }
    }

    /// Adds a field with a value that is already encoded as JSON.
    pub fn raw(&mut self, name: &str, json: &str) -> &mut Object {
        self.name(name);
        self.text.extend_from_slice(json.as_bytes());
        self
    }

    /// Adds a field with a nested object, which it closes.
    pub fn object(&mut self, name: &str, object: &mut Object) -> &mut Object {
        let line = object.line();
        let json = String::from_utf8_lossy(line).trim_end().to_owned();
        self.raw(name, &json)
    }

    /// Adds a field with an array of objects.
    pub fn objects(&mut self, name: &str, objects: impl IntoIterator<Item = Object>) -> &mut Object {
        self.name(name);
        self.text.push(b'[');
        for (at, mut object) in objects.into_iter().enumerate() {
            if at > 0 {
                self.text.push(b',');
            }
            let line = object.line();
            self.text.extend_from_slice(line.strip_suffix(b"\n").unwrap_or(line));
        }
        self.text.push(b']');
        self
    }

    /// Closes the object and returns it with a newline.
    pub fn line(&mut self) -> &[u8] {
        if self.text.is_empty() {
            self.text.push(b'{');
        }
        if !self.text.ends_with(b"}\n") {
            self.text.extend_from_slice(b"}\n");
        }
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_valid_json() {
        let mut object = Object::new();
        object
            .text("a\"", "x\n\u{1}")
            .bytes("key", b"\xff")
            .bytes("value", "ä".as_bytes())
            .number("n", -5i64);
        object.optional("none", None::<i64>).bool("yes", true);
        let mut inner = Object::new();
        inner.number("i", 1u64);
        object.objects("list", [inner, Object::new()]);
        let read: serde_json::Value = serde_json::from_slice(object.line()).unwrap();
        assert_eq!(
            read,
            serde_json::json!({"a\"": "x\n\u{1}", "key_base64": "/w==", "value": "ä", "n": -5, "none": null,
                "yes": true, "list": [{"i": 1}, {}]})
        );
        assert_eq!(Object::new().line(), b"{}\n");
    }
}
