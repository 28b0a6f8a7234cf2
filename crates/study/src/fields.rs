//! The fields of a record and their types, found by reading the record: a deserializer notes each type
//! that is asked for, and answers with an empty value.
//!
//! So a table of columns cannot differ from the record that is written as JSON. Invariant: lists have
//! one element, options a value, so that inner types are found too. Absent: enums, which no result has.

use serde::de::value::{Error, StrDeserializer};
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, IntoDeserializer, Visitor};
use serde::{Serialize, forward_to_deserialize_any};

/// A type of JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Type {
    /// `true` or `false`.
    Boolean,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// Text.
    Text,
    /// A value or null.
    Optional(Box<Type>),
    /// A list; of a tuple too, if its elements have one type.
    List(Box<Type>),
    /// Values by names that are data, not fields.
    Map(Box<Type>),
    /// A record's name, and its fields in order.
    Record(&'static str, Vec<(&'static str, Type)>),
}

/// The type of a record.
///
/// # Panics
/// The record has a type that is no JSON, or an enum.
pub(crate) fn type_of<T: for<'de> Deserialize<'de>>() -> Type {
    let mut found = Type::Text;
    let read = T::deserialize(Note(&mut found));
    if let Err(error) = read {
        panic!("{}: {error}", std::any::type_name::<T>());
    }
    found
}

/// Notes the type that is asked for.
struct Note<'a>(&'a mut Type);

/// Answers to questions for single values.
macro_rules! answers {
    ($($ask:ident: $type:expr, $answer:ident($value:expr);)*) => {
        $(fn $ask<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            *self.0 = $type;
            visitor.$answer($value)
        })*
    };
}

impl<'de> Deserializer<'de> for Note<'_> {
    type Error = Error;

    answers! {
        deserialize_bool: Type::Boolean, visit_bool(false);
        deserialize_u8: Type::Integer, visit_u8(0);
        deserialize_u16: Type::Integer, visit_u16(0);
        deserialize_u32: Type::Integer, visit_u32(0);
        deserialize_u64: Type::Integer, visit_u64(0);
        deserialize_i64: Type::Integer, visit_i64(0);
        deserialize_f64: Type::Number, visit_f64(0.0);
        deserialize_str: Type::Text, visit_str("");
        deserialize_string: Type::Text, visit_str("");
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let mut inner = Type::Text;
        let value = visitor.visit_some(Note(&mut inner));
        *self.0 = Type::Optional(Box::new(inner));
        value
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_tuple(1, visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
        let mut inner = Type::Text;
        let value = visitor.visit_seq(Elements(len, &mut inner));
        *self.0 = Type::List(Box::new(inner));
        value
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let mut fields = Vec::new();
        let value = visitor.visit_map(Fields(&[""], &mut fields));
        let (_, inner) = fields
            .pop()
            .ok_or_else(|| de::Error::custom("an empty map"))?;
        *self.0 = Type::Map(Box::new(inner));
        value
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let mut fields = Vec::new();
        let value = visitor.visit_map(Fields(names, &mut fields));
        *self.0 = Type::Record(name, fields);
        value
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(de::Error::custom("a type that tables do not have"))
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i128 u128 f32 char bytes byte_buf unit unit_struct newtype_struct tuple_struct enum
        identifier ignored_any
    }
}

/// Elements left in a list, and their type.
struct Elements<'a>(usize, &'a mut Type);

impl<'de> de::SeqAccess<'de> for Elements<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        let Some(left) = self.0.checked_sub(1) else {
            return Ok(None);
        };
        self.0 = left;
        seed.deserialize(Note(self.1)).map(Some)
    }
}

/// Names to come, and the fields found.
struct Fields<'a>(&'static [&'static str], &'a mut Vec<(&'static str, Type)>);

impl<'de> de::MapAccess<'de> for Fields<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let Some((name, left)) = self.0.split_first() else {
            return Ok(None);
        };
        self.0 = left;
        self.1.push((name, Type::Text));
        let name: StrDeserializer<'_, Error> = name.into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let (_, found) = self.1.last_mut().expect("a name comes before its value");
        seed.deserialize(Note(found))
    }
}
