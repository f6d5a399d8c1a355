import Foundation
import HTTPTypes
import HapaxModel
import Hummingbird

/// Answers what other vendors' SDKs in pages ask before they send (``SenderSettings``).
@available(macOS 14, *)
struct SettingsRoute: Sendable {
    let ingest: IngestRoute
    /// Whether this server speaks TLS itself.
    let isSecure: Bool

    func respond(to request: Request, _ context: IngestContext, _ settings: SenderSettings) throws -> Response {
        let known = Set([settings.keyParameter].compactMap(\.self))
        let parameters = try QueryParameters(request.uri.query, known: known, ignoresOthers: true)
        let key =
            context.parameters.get("key").map { $0.removingPercentEncoding ?? $0 } ?? settings.keyParameter.flatMap(parameters.text) ?? ""
        // An SDK without a key of its own asks about flags only, of which there are none for anybody.
        if !settings.isPost {
            do throws(RequestProblem) {
                try ingest.checkPage(of: request, try ingest.keys.sender(nil, inAddress: [key]))
            } catch {
                var problem = ingest.noted(error)
                problem.isForSender = true
                throw problem
            }
        }
        // Said to the asker alone: a proxy's word needs no trust here.
        let isSecure = isSecure || request.headers[.forwardedProtocol]?.lowercased() == "https"
        var response = Routes.response(
            settings.type, settings.answer(key: key, host: request.head.authority ?? "localhost", isSecure: isSecure))
        response.headers[.cacheControl] = "no-store"
        return response
    }
}

extension HTTPField.Name {
    fileprivate static let forwardedProtocol = HTTPField.Name("X-Forwarded-Proto") ?? .via
}
