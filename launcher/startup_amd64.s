#include "textflag.h"

// The entry point of graphsignal-run (linker option -E). Go's runtime puts handlers in the place of most ignored
// dispositions and unblocks some signals before any Go code runs, so what was inherited is noted here first.
TEXT graphsignalRunStart(SB),NOSPLIT|NOFRAME|TOPFRAME,$0
	MOVQ	SP, R13
	SUBQ	$64, SP
	MOVQ	$1, R12
query:
	// rt_sigaction(R12, NULL, SP, 8): the handler is the first word of the answer.
	MOVQ	$0, 0(SP)
	MOVQ	R12, DI
	XORL	SI, SI
	MOVQ	SP, DX
	MOVL	$8, R10
	MOVL	$13, AX
	SYSCALL
	CMPQ	0(SP), $1 // SIG_IGN
	JNE	next
	MOVQ	R12, CX
	DECQ	CX
	MOVQ	$1, AX
	SHLQ	CX, AX
	ORQ	AX, ·ignoredAtStart(SB)
next:
	INCQ	R12
	CMPQ	R12, $64
	JLE	query
	// rt_sigprocmask(SIG_BLOCK, NULL, SP, 8)
	MOVQ	$0, 0(SP)
	XORL	DI, DI
	XORL	SI, SI
	MOVQ	SP, DX
	MOVL	$8, R10
	MOVL	$14, AX
	SYSCALL
	MOVQ	0(SP), AX
	MOVQ	AX, ·blockedAtStart(SB)
	MOVB	$1, ·startNoted(SB)
	MOVQ	R13, SP
	JMP	_rt0_amd64_linux(SB)
