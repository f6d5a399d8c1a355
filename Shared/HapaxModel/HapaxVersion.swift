/// The version of client, commands and server, which are released together.
package enum HapaxVersion {
    package static let current = "0.1.0"
}
