/// Whether a request may be made now.
package enum RequestPermission: Hashable, Sendable {
    /// - Parameter timeout: nil: what the endpoint says.
    case granted(timeout: Duration?)
    /// None, by nobody. Nothing is said about when one will be.
    case denied
    /// One may be made, but whoever asked for the pass wants no other.
    case unwanted
}
