import AppleStubs
import Foundation
import HapaxClient
import TestSupport
import Testing

// The quick starts of docs/client-app.md as they stand there, but for their imports and `@main`.

// SwiftUI
struct ShopApp: App {
    init() {
        EventClient.bootstrap(EventClient.Configuration(server: URL(string: "https://events.example.org")!, writeKey: "…"))
        EventClient.shared.attach()
    }

    var body: some Scene {
        WindowGroup { CartView().eventClient(.shared) }
    }
}

struct CartView: View {
    let amount = 12.5

    var body: some View {
        Button("Pay") { EventClient.shared.track("paid", properties: ["amount": amount]) }
            .trackScreen("cart")
    }
}
// end

// UIKit
final class AppDelegate: UIResponder, UIApplicationDelegate {
    func application(
        _ application: UIApplication, didFinishLaunchingWithOptions launchOptions: [UIApplication.LaunchOptionsKey: Any]?
    ) -> Bool {
        EventClient.bootstrap(EventClient.Configuration(server: URL(string: "https://events.example.org")!, writeKey: "…"))
        EventClient.shared.attach(application)
        return true
    }
}
// end

@Suite("Quick starts", .endsWhenItHangs)
struct QuickStartTests {
    @Test("the quick starts of docs/client-app.md are what is compiled here", arguments: ["SwiftUI", "UIKit"])
    func quickStartsCompile(framework: String) throws {
        func lines(_ path: String) throws -> [Substring] {
            try String(contentsOf: PackageLayout.root.appending(path: path), encoding: .utf8)
                .split(separator: "\n", omittingEmptySubsequences: false)
        }
        let compiled = try lines("Tests/HapaxAppleTests/QuickStarts.swift").drop { $0 != "// \(framework)" }.dropFirst().prefix {
            $0 != "// end"
        }
        let shown = try lines("docs/client-app.md").drop { $0 != "import \(framework)" }.dropFirst().prefix { $0 != "```" }
        #expect(!compiled.isEmpty && Array(shown.drop { $0.isEmpty || $0 == "@main" }) == Array(compiled))
    }
}
