#include "textflag.h"

// The entry point of graphsignal-run (linker option -E). Go's runtime puts handlers in the place of most ignored
// dispositions and unblocks some signals before any Go code runs, so what was inherited is noted here first.
TEXT graphsignalRunStart(SB),NOSPLIT|NOFRAME|TOPFRAME,$0
	SUB	$64, RSP
	MOVD	$1, R19
	MOVD	$0, R20
query:
	// rt_sigaction(R19, NULL, RSP, 8): the handler is the first word of the answer.
	MOVD	ZR, 0(RSP)
	MOVD	R19, R0
	MOVD	ZR, R1
	MOVD	RSP, R2
	MOVD	$8, R3
	MOVD	$134, R8
	SVC
	MOVD	0(RSP), R9
	CMP	$1, R9 // SIG_IGN
	BNE	next
	SUB	$1, R19, R10
	MOVD	$1, R11
	LSL	R10, R11, R11
	ORR	R11, R20
next:
	ADD	$1, R19
	CMP	$64, R19
	BLE	query
	MOVD	R20, ·ignoredAtStart(SB)
	// rt_sigprocmask(SIG_BLOCK, NULL, RSP, 8)
	MOVD	ZR, 0(RSP)
	MOVD	ZR, R0
	MOVD	ZR, R1
	MOVD	RSP, R2
	MOVD	$8, R3
	MOVD	$135, R8
	SVC
	MOVD	0(RSP), R9
	MOVD	R9, ·blockedAtStart(SB)
	MOVD	$1, R9
	MOVB	R9, ·startNoted(SB)
	ADD	$64, RSP
	JMP	_rt0_arm64_linux(SB)
