//! The program as its user runs it: commands, daemons, files and packages, without guests.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../support/mod.rs"]
mod support;

mod authentication;
mod bad_days;
mod bad_limits;
mod bad_media;
mod capture;
mod cloud_hypervisor;
mod config_file;
mod copying;
mod daemons;
mod datagrams;
mod dissector;
mod examples;
mod exit_codes;
mod export_control;
mod external_device;
mod far_ends;
mod fio_words;
mod foreign_captures;
mod identify;
mod interrupted;
mod logs;
mod mdns;
mod metrics;
mod nvme_cli;
mod nvme_rdma;
mod nvme_tls;
mod packaging;
mod pages;
mod paths;
mod quic;
mod readme;
mod record;
mod record_bad_days;
mod record_control;
mod record_each;
mod record_elsewhere;
mod record_far;
mod record_mistakes;
mod record_raw;
mod record_ring;
mod record_stripes;
mod sandbox;
mod schemas;
mod service;
mod shm;
mod sim;
mod state;
mod state_target;
mod status;
mod target;
mod target_backings;
mod target_bad_days;
mod target_control;
mod target_strangers;
mod tidy;
mod trust;
mod tsn;
mod ui;
mod ui_browser;
mod vfio_user;
mod wrong_arguments;
