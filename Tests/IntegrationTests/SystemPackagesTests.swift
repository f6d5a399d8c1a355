import Foundation
import Testing
import TestSupport

struct SystemPackagesTests {
    private static func text(_ file: String) throws -> String {
        try String(contentsOf: PackageLayout.root.appending(path: file), encoding: .utf8)
    }

    @Test("C34: the system packages that the client is built with stand wherever somebody looks for them")
    func clientPackagesAreNamed() throws {
        let named = try Self.text("Package.swift").matches(of: /\.apt\(\["(\S+)"\]\)/).map { String($0.output.1) }
        // GRDB names SQLite's package itself, and SwiftPM asks pkg-config for all of them.
        let needed = Set(named + ["libsqlite3-dev", "pkg-config"])
        #expect(needed.isSuperset(of: ["libssl-dev", "libcurl4-openssl-dev", "zlib1g-dev", "libpq-dev"]))
        for file in [".ci/install-packages", "Dockerfile", "Examples/orders-service/Dockerfile", "README.md", "docs/client-service.md"] {
            let words = Set(try Self.text(file).split { !($0.isLetter || $0.isNumber || $0 == "-") }.map(String.init))
            let isServer = file == "Dockerfile" || file == ".ci/install-packages"
            #expect(needed.subtracting(isServer ? [] : ["libpq-dev"]).subtracting(words).isEmpty, "\(file)")
        }
    }

    @Test("C34: no cryptography is compiled for a client: none of our targets has swift-crypto, and the client none of swift-nio-ssl")
    func clientCompilesNoCryptography() throws {
        let manifest = try Self.text("Package.swift")
        #expect(!manifest.contains("swift-crypto"))
        for line in manifest.split(separator: "\n") where line.contains("package: \"swift-nio-ssl\"") {
            #expect(line.contains("condition: server"))
        }
    }
}
