/// Whether a request may be made now.
package enum RequestPermission: Hashable, Sendable {
    /// - Parameter timeout: nil: what the endpoint says.
    case granted(timeout: Duration?)
    /// None, for any caller, and it is not known until when.
    case denied
    /// One may be made, but whoever asked for the pass wants no other.
    case unwanted
}
