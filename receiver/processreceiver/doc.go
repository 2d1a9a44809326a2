// Package processreceiver reports CPU, memory, threads and context switches of the workload's processes, and the memory
// of the host, from /proc.
package processreceiver
