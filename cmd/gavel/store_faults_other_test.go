//go:build !linux

package main

func storeFault() {}
