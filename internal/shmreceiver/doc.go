// Package shmreceiver is the receiver of shared-memory documents: what the cupti and the probe receiver have in
// common. They differ in which files of a run directory they read.
package shmreceiver
