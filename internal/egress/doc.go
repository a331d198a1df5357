// Package egress is the door out of the house: the one transport that fetches from
// addresses which somebody else may have a say in.
//
// It promises that what a name resolves to is looked at when it is dialled, at every
// redirect anew, so that neither a name that changes its mind nor a redirect leads to
// this machine, to a private network, or to where clouds hand out secrets.
//
// It must never ask the environment for a proxy: behind one it would see the proxy
// only.
package egress
