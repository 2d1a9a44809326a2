// Package amdsmireceiver reports what AMD GPUs do, from AMD SMI: use, memory, power, temperatures, clocks, throttling,
// links and memory errors.
package amdsmireceiver
