// Package smi calls AMD SMI (libamd_smi) without linking to it, and reads from its structures only what has the same
// place in all its releases from ROCm 6.1 to 7.
package smi
