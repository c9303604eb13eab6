"""What counts as a definition in each language that has a grammar: the kinds of its syntax nodes, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Final


class Role(IntEnum):
    """What the search for definitions does with a node. All but `ATTACHED` are looked into; other kinds never are."""

    DEFINITION = 1  # has a name and is cut at
    BODIED = 2  # a definition where it has a body, else only the use of a name
    VALUED = 3  # a definition where its value is a function or a class, else a wrapper
    PACKAGE = 4  # names all that follows it, or, where it has a body, is a definition
    WRAPPER = 5  # the definition in it begins and ends with it: decorators, `export`, `template <...>`
    INSIDE = 6  # may hold definitions
    ATTACHED = 7  # comments and attributes: directly above a definition they belong to it


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinds:
    """The kinds of one grammar, each list parted by blanks. `functions` are what makes a `valued` kind a definition.

    `is_ended_by_lines` and `has_directives` are those of `count_unfinished`.
    """

    definitions: str
    inside: str
    attached: str = "comment"
    bodied: str = ""
    valued: str = ""
    packages: str = ""
    wrappers: str = ""
    functions: str = ""
    is_ended_by_lines: bool = False
    has_directives: bool = False

    def roles(self) -> Mapping[str, Role]:
        """The role of each kind."""
        listed = {
            Role.DEFINITION: self.definitions,
            Role.BODIED: self.bodied,
            Role.VALUED: self.valued,
            Role.PACKAGE: self.packages,
            Role.WRAPPER: self.wrappers,
            Role.INSIDE: self.inside,
            Role.ATTACHED: self.attached,
        }
        return {kind: role for role, kinds in listed.items() for kind in kinds.split()}


_JAVASCRIPT_DEFINITIONS = (
    "function_declaration generator_function_declaration class_declaration method_definition class_static_block"
)
_JAVASCRIPT_INSIDE = (
    "program statement_block class_body class object expression_statement call_expression arguments "
    "parenthesized_expression arrow_function function_expression if_statement else_clause try_statement "
    "return_statement"
)
_JAVASCRIPT_FUNCTIONS = "arrow_function function_expression generator_function class"
_JAVASCRIPT_WRAPPERS = "lexical_declaration variable_declaration"
_TYPESCRIPT = Kinds(
    definitions=f"{_JAVASCRIPT_DEFINITIONS} abstract_class_declaration interface_declaration type_alias_declaration "
    "enum_declaration internal_module module function_signature abstract_method_signature",
    inside=_JAVASCRIPT_INSIDE,
    attached="comment decorator",
    valued="variable_declarator assignment_expression pair public_field_definition export_statement",
    wrappers=f"{_JAVASCRIPT_WRAPPERS} ambient_declaration",
    functions=_JAVASCRIPT_FUNCTIONS,
    is_ended_by_lines=True,
)
_C_INSIDE = "translation_unit preproc_if preproc_ifdef preproc_else preproc_elif linkage_specification declaration_list"

KINDS: Final[Mapping[str, Kinds]] = MappingProxyType(
    {
        "bash": Kinds(
            definitions="function_definition",
            inside="program compound_statement if_statement elif_clause else_clause",
            is_ended_by_lines=True,
        ),
        "c": Kinds(
            definitions="function_definition",
            bodied="struct_specifier union_specifier enum_specifier type_definition",
            wrappers="declaration",
            inside=_C_INSIDE,
            has_directives=True,
        ),
        "cpp": Kinds(
            definitions="function_definition namespace_definition concept_definition",
            bodied="class_specifier struct_specifier union_specifier enum_specifier type_definition",
            wrappers="declaration field_declaration template_declaration",
            inside=f"{_C_INSIDE} field_declaration_list",
            has_directives=True,
        ),
        "csharp": Kinds(
            definitions="namespace_declaration class_declaration struct_declaration interface_declaration "
            "enum_declaration record_declaration delegate_declaration method_declaration constructor_declaration "
            "destructor_declaration property_declaration event_declaration indexer_declaration operator_declaration "
            "conversion_operator_declaration",
            packages="file_scoped_namespace_declaration",
            inside="compilation_unit declaration_list preproc_if preproc_elif preproc_else",
            has_directives=True,
        ),
        "go": Kinds(
            definitions="function_declaration method_declaration type_spec type_alias",
            packages="package_clause",
            wrappers="type_declaration",
            inside="source_file",
            is_ended_by_lines=True,
        ),
        "java": Kinds(
            definitions="class_declaration interface_declaration enum_declaration record_declaration "
            "annotation_type_declaration module_declaration method_declaration constructor_declaration "
            "compact_constructor_declaration",
            packages="package_declaration",
            inside="program class_body interface_body enum_body enum_body_declarations annotation_type_body",
            attached="line_comment block_comment",
        ),
        "javascript": Kinds(
            definitions=_JAVASCRIPT_DEFINITIONS,
            inside=_JAVASCRIPT_INSIDE,
            attached="comment decorator",
            valued="variable_declarator assignment_expression pair field_definition export_statement",
            wrappers=_JAVASCRIPT_WRAPPERS,
            functions=_JAVASCRIPT_FUNCTIONS,
            is_ended_by_lines=True,
        ),
        "kotlin": Kinds(
            definitions="class_declaration object_declaration companion_object function_declaration "
            "secondary_constructor",
            packages="package_header",
            inside="source_file class_body enum_class_body function_body block",
            attached="line_comment block_comment",
            is_ended_by_lines=True,
        ),
        "php": Kinds(
            definitions="class_declaration interface_declaration trait_declaration enum_declaration "
            "function_definition method_declaration",
            packages="namespace_definition",
            inside="program declaration_list enum_declaration_list compound_statement if_statement else_clause",
        ),
        "python": Kinds(
            definitions="function_definition class_definition",
            wrappers="decorated_definition",
            inside="module block if_statement elif_clause else_clause try_statement except_clause finally_clause "
            "with_statement for_statement while_statement",
            is_ended_by_lines=True,
        ),
        "ruby": Kinds(
            definitions="module class singleton_class method singleton_method",
            inside="program body_statement call argument_list do_block block if unless then else begin "
            "parenthesized_statements",
            is_ended_by_lines=True,
        ),
        "rust": Kinds(
            definitions="function_item function_signature_item struct_item enum_item union_item trait_item impl_item "
            "mod_item macro_definition type_item",
            inside="source_file declaration_list block foreign_mod_item",
            attached="line_comment block_comment attribute_item",
        ),
        "scala": Kinds(
            definitions="object_definition class_definition trait_definition enum_definition function_definition "
            "function_declaration given_definition package_object type_definition",
            packages="package_clause",
            inside="compilation_unit template_body with_template_body enum_body block indented_block "
            "extension_definition",
            attached="comment block_comment",
            is_ended_by_lines=True,
        ),
        "tsx": _TYPESCRIPT,
        "typescript": _TYPESCRIPT,
    }
)
