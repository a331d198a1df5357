//go:build !linux

package storetest

func memoryDir() string { return "" }
