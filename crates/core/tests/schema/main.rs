//! The JSON Schemas of both configuration files, for editors: generated from the types here and
//! checked in.
//!
//! A test compares the keys of these types with those of the reader, so that an editor never offers
//! a key that `bullpen lint` refuses. `BULLPEN_BLESS=1 cargo test -p bullpen-core --test schema`
//! writes the schemas again.
//!
//! Not here: rules that a schema cannot express, such as references (`bullpen_core::config`).

mod runs_on_file;
mod stack_file;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use bullpen_core::config::{MappingShape, runs_on, stack};
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::Value;

#[expect(clippy::disallowed_methods, reason = "only a variable can pass an option to a test")]
fn blessing() -> bool {
    std::env::var("BULLPEN_BLESS").is_ok_and(|value| value == "1")
}

fn page(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas").join(name)
}

/// Generates draft 7, because editors support it.
fn schema<T: JsonSchema>(title: &str) -> Value {
    let generator = SchemaGenerator::new(SchemaSettings::draft07());
    let mut schema = generator.into_root_schema_for::<T>();
    schema.insert("title".to_owned(), title.into());
    schema.to_value()
}

fn runs_on_schema() -> Value {
    schema::<runs_on_file::RunsOnFile>("runs-on.yml")
}

fn stack_schema() -> Value {
    schema::<stack_file::StackFile>("bullpen.toml")
}

fn is_current(name: &str, schema: &Value) {
    let text = format!("{schema:#}\n");
    if blessing() {
        std::fs::create_dir_all(page("")).expect("creating the folder for schemas");
        std::fs::write(page(name), &text).expect("writing a schema");
    }
    let stored = std::fs::read_to_string(page(name)).unwrap_or_default();
    assert!(
        stored == text,
        "schemas/{name} differs from the types; \
         write it again with `BULLPEN_BLESS=1 cargo test -p bullpen-core --test schema`"
    );
}

#[test]
fn the_stored_schemas_are_current() {
    is_current("runs-on.schema.json", &runs_on_schema());
    is_current("bullpen.schema.json", &stack_schema());
}

/// The keys of a definition in the schema, or of the whole file.
fn keys(schema: &Value, definition: &str) -> BTreeSet<String> {
    let place = if definition.is_empty() { schema } else { &schema["definitions"][definition] };
    let properties = place["properties"].as_object();
    let properties = properties.unwrap_or_else(|| panic!("no keys in {definition:?}"));
    properties.keys().cloned().collect()
}

fn same_keys(schema: &Value, definition: &str, shape: &MappingShape) {
    let known: BTreeSet<String> = shape.keys.iter().map(|key| key.name.to_owned()).collect();
    assert_eq!(keys(schema, definition), known, "{}", shape.name);
}

#[test]
fn the_schemas_have_the_keys_that_the_reader_knows() {
    let schema = runs_on_schema();
    let definitions = [
        "",
        "Runner",
        "Image",
        "Pool",
        "Entry",
        "Match",
        "Extension",
        "RunnerExtension",
        "ReuseBounds",
        "PoolExtension",
        "Labels",
        "LabelRules",
        "LabelMaxima",
        "PlainLabels",
    ];
    assert_eq!(definitions.len(), runs_on::SHAPES.len());
    for (definition, shape) in definitions.into_iter().zip(runs_on::SHAPES) {
        same_keys(&schema, definition, shape);
    }
    let schema = stack_schema();
    same_keys(&schema, "", &stack::FILE);
    let definitions = [
        "StackSection",
        "Aws",
        "Instance",
        "ProcessFleet",
        "Ceilings",
        "Github",
        "Listeners",
        "Limits",
    ];
    assert_eq!(definitions.len(), stack::SECTIONS.len());
    for (definition, (_, shape)) in definitions.into_iter().zip(stack::SECTIONS) {
        same_keys(&schema, definition, shape);
    }
}

#[test]
fn every_mapping_is_closed_but_the_file_itself() {
    for (schema, open) in [(runs_on_schema(), 1), (stack_schema(), 0)] {
        let definitions = schema["definitions"].as_object().expect("definitions");
        let closed = |schema: &Value| schema["additionalProperties"] == Value::Bool(false);
        assert_eq!(usize::from(!closed(&schema)), open);
        for (name, definition) in definitions {
            let is_mapping = definition.get("properties").is_some();
            assert!(!is_mapping || closed(definition), "{name} is open");
        }
    }
}
