//! Tests of the switch.
