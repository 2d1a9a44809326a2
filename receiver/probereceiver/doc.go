// Package probereceiver reads the documents of user probes (probes.json) and of every other library
// in shared memory.
package probereceiver
