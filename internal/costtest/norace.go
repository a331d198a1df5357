//go:build !race

package costtest

const slowdown = 1
