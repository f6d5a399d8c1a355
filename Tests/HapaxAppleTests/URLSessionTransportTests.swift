import Foundation
import FoundationNetworking
import Testing

@testable import HapaxClient

/// Apple's transport over real sockets, on the URLSession that comes with Swift for Linux.
@Suite("URLSessionTransport (R5, R33, D6, I5, I13)", .endsWhenItHangs)
struct URLSessionTransportTests {
    @Test("keeps what every transport promises", arguments: TransportRule.all.filter { !$0.isTooMuchForLinux })
    func keepsTheContract(rule: TransportRule) async throws {
        try await rule.check { URLSessionTransport() }
    }

    @Test("five connections to a host, also over cellular networks; nothing is kept between requests (R5, I14)")
    func sessionIsConfigured() {
        let configuration = URLSessionTransport.configuration
        #expect(configuration.httpMaximumConnectionsPerHost == 5 && configuration.allowsCellularAccess)
        #expect(configuration.urlCache == nil && configuration.httpCookieStorage == nil)
    }
}
