//go:build race

package costtest

const slowdown = 8 // the race detector multiplies processor time
