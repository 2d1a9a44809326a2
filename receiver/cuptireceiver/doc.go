// Package cuptireceiver reads the documents of the GPU profiling libraries (cupti.json and rocm.json)
// in shared memory.
package cuptireceiver
