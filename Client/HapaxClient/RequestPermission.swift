/// Whether another request may be made; asked before each one.
package enum RequestPermission: Hashable, Sendable {
    /// - Parameter timeout: nil for the usual one.
    case granted(timeout: Duration?)
    /// Rest without an error; everything stays.
    case denied
}
