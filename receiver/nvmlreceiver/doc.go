// Package nvmlreceiver reports what NVIDIA GPUs do and how they are: utilization, memory, power, clocks, throttling,
// links and errors, through NVIDIA's management library (NVML).
//
// Everything that calls the driver runs on goroutines of its own, two for each device, since a call can hang for as long
// as a GPU is in trouble. A collection asks them for a reading and takes what is there in time.
package nvmlreceiver
