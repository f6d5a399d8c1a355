// swift-tools-version: 6.2

import PackageDescription

/// Where Hapax itself is worked on: make sets it. A package that depends on Hapax resolves no server, and may have a newer compiler with other
/// warnings.
let isWorkedOn = Context.environment["HAPAX_STRICT"] == "1"

let strict: [SwiftSetting] =
    [
        .swiftLanguageMode(.v6),
        .enableUpcomingFeature("ExistentialAny"),
        .enableUpcomingFeature("MemberImportVisibility"),
    ] + (isWorkedOn ? [.treatAllWarnings(as: .error)] : [])

/// What only the server needs: an app that depends on Hapax does not resolve it.
let server: TargetDependencyCondition? = .when(traits: ["Server"])

/// What only a service needs that embeds the client: it depends on Hapax with `traits: ["Service"]`.
let service: TargetDependencyCondition? = .when(traits: ["Service"])

let package = Package(
    name: "hapax",
    platforms: [.macOS(.v13), .iOS(.v16), .tvOS(.v16), .watchOS(.v9), .visionOS(.v1)],
    products: [
        .library(name: "HapaxClient", targets: ["HapaxClient"]),
        .library(name: "HapaxClientService", targets: ["HapaxClientService"]),
        .library(name: "HapaxClientUI", targets: ["HapaxClientUI"]),
        .library(name: "HapaxTestKit", targets: ["HapaxTestKit"]),
        .library(name: "HapaxServer", targets: ["HapaxServer"]),
        .executable(name: "hapax", targets: ["hapax"]),
        .executable(name: "hapax-server", targets: ["hapax-server"]),
    ],
    traits: [
        .trait(name: "Server", description: "The ingest server and what it is built on."),
        .trait(name: "Service", description: "The client as a service of swift-service-lifecycle."),
        .default(enabledTraits: isWorkedOn ? ["Server", "Service"] : []),
    ],
    dependencies: [
        .package(url: "https://github.com/apple/swift-argument-parser.git", from: "1.8.2"),
        .package(url: "https://github.com/apple/swift-http-types.git", from: "1.8.0"),
        .package(url: "https://github.com/apple/swift-log.git", from: "1.16.2"),
        .package(url: "https://github.com/apple/swift-metrics.git", from: "2.13.0"),
        .package(url: "https://github.com/apple/swift-nio.git", from: "2.101.2"),
        .package(url: "https://github.com/apple/swift-nio-extras.git", from: "1.35.2"),
        .package(url: "https://github.com/apple/swift-nio-ssl.git", from: "2.37.2"),
        .package(url: "https://github.com/groue/GRDB.swift.git", from: "7.10.0"),
        .package(url: "https://github.com/hummingbird-project/hummingbird.git", from: "2.28.1"),
        .package(url: "https://github.com/swift-server/swift-service-lifecycle.git", from: "2.13.0"),
    ],
    targets: [
        // Shared: what both sides speak.
        .systemLibrary(name: "CZlib", path: "Shared/CZlib", providers: [.apt(["zlib1g-dev"])]),
        .systemLibrary(
            name: "CCrypto", path: "Shared/CCrypto", pkgConfig: "libcrypto", providers: [.apt(["libssl-dev"])]),
        .target(
            name: "HapaxModel",
            dependencies: ["CZlib", .target(name: "CCrypto", condition: .when(platforms: [.linux]))],
            path: "Shared/HapaxModel",
            swiftSettings: strict
        ),
        .target(
            name: "HapaxSQLite",
            dependencies: [.product(name: "GRDB", package: "GRDB.swift")],
            path: "Shared/HapaxSQLite",
            swiftSettings: strict
        ),

        // Client: the SDK and the command line.
        .systemLibrary(
            name: "CCurl", path: "Client/CCurl", pkgConfig: "libcurl", providers: [.apt(["libcurl4-openssl-dev"])]),
        .target(
            name: "HapaxClient",
            dependencies: [
                "HapaxModel", "HapaxSQLite",
                .target(name: "CCurl", condition: .when(platforms: [.linux])),
                .product(name: "GRDB", package: "GRDB.swift"),
                .product(name: "GRDBSQLite", package: "GRDB.swift"),
                .product(name: "CoreMetrics", package: "swift-metrics"),
                .product(name: "Logging", package: "swift-log"),
            ],
            path: "Client/HapaxClient",
            resources: [.copy("PrivacyInfo.xcprivacy")],
            swiftSettings: strict
        ),
        .target(
            name: "HapaxClientService",
            dependencies: [
                "HapaxClient", "HapaxModel",
                .product(name: "CoreMetrics", package: "swift-metrics"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle", condition: service),
            ],
            path: "Client/HapaxClientService",
            swiftSettings: strict
        ),
        .target(
            name: "HapaxClientUI", dependencies: ["HapaxClient", "HapaxModel"], path: "Client/HapaxClientUI", swiftSettings: strict),
        .target(
            name: "HapaxTestKit", dependencies: ["HapaxClient", "HapaxModel"], path: "Client/HapaxTestKit", swiftSettings: strict),
        .executableTarget(
            name: "hapax",
            dependencies: [
                "HapaxClient", "HapaxModel",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            path: "Client/hapax",
            swiftSettings: strict
        ),

        // Server: the ingest server as a library, and its executable.
        .systemLibrary(name: "CLibpq", path: "Server/CLibpq", pkgConfig: "libpq", providers: [.apt(["libpq-dev"])]),
        .target(name: "ServerTrait", path: "Server/ServerTrait", swiftSettings: strict),
        .target(
            name: "HapaxServer",
            dependencies: [
                "ServerTrait", "HapaxModel", "HapaxSQLite", "CLibpq",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
                .product(name: "GRDB", package: "GRDB.swift"),
                .product(name: "GRDBSQLite", package: "GRDB.swift"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "Hummingbird", package: "hummingbird", condition: server),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle", condition: server),
                .product(name: "UnixSignals", package: "swift-service-lifecycle", condition: server),
                .product(name: "NIOCore", package: "swift-nio", condition: server),
                .product(name: "NIOHTTP1", package: "swift-nio", condition: server),
                .product(name: "NIOHTTPTypes", package: "swift-nio-extras", condition: server),
                .product(name: "NIOSSL", package: "swift-nio-ssl", condition: server),
                .product(name: "NIOTLS", package: "swift-nio", condition: server),
                .product(name: "HTTPTypes", package: "swift-http-types", condition: server),
                .product(name: "HummingbirdCore", package: "hummingbird", condition: server),
            ],
            path: "Server/HapaxServer", exclude: ["Script/hapax.js"],
            resources: [
                "page.html", "page.css", "page.js", "rows.js", "live.js", "analysis.js", "report.js", "find.js", "trust.js", "storage.js",
                "sections.js",
            ].map { .embedInCode("Page/\($0)") } + [.embedInCode("Script/hapax.min.js")],
            swiftSettings: strict
        ),
        .executableTarget(
            name: "hapax-server",
            dependencies: ["HapaxServer"],
            path: "Server/hapax-server",
            swiftSettings: strict
        ),

        // Tests.
        .target(
            name: "TestSupport",
            dependencies: ["HapaxModel", "HapaxSQLite", .product(name: "GRDBSQLite", package: "GRDB.swift")],
            path: "Tests/TestSupport",
            swiftSettings: strict
        ),
        .target(
            name: "StoreStandIns", dependencies: ["HapaxModel", "HapaxServer"], path: "Tests/StoreStandIns", swiftSettings: strict),
        .executableTarget(
            name: "hapax-test-worker",
            dependencies: ["HapaxClient", "HapaxModel", "TestSupport"],
            path: "Tests/hapax-test-worker",
            swiftSettings: strict
        ),
        .testTarget(
            name: "HapaxModelTests",
            dependencies: ["HapaxModel", "TestSupport"],
            path: "Tests/HapaxModelTests",
            resources: [.copy("Golden")],
            swiftSettings: strict
        ),
        .testTarget(
            name: "HapaxClientTests",
            dependencies: [
                "HapaxClient", "HapaxModel", "HapaxSQLite", "HapaxTestKit", "TestSupport", "hapax", "hapax-test-worker",
                .product(name: "GRDB", package: "GRDB.swift"),
                .product(name: "GRDBSQLite", package: "GRDB.swift"),
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "CoreMetrics", package: "swift-metrics"), .product(name: "MetricsTestKit", package: "swift-metrics"),
            ],
            path: "Tests/HapaxClientTests",
            resources: [.copy("Golden")],
            swiftSettings: strict
        ),
        .testTarget(
            name: "HapaxClientServiceTests",
            dependencies: [
                "HapaxClientService", "HapaxClient", "HapaxModel", "HapaxTestKit", "TestSupport",
                .product(name: "CoreMetrics", package: "swift-metrics"), .product(name: "MetricsTestKit", package: "swift-metrics"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle", condition: service),
            ],
            path: "Tests/HapaxClientServiceTests",
            swiftSettings: strict
        ),
        .testTarget(
            name: "HapaxServerTests",
            dependencies: [
                "HapaxServer", "HapaxModel", "HapaxSQLite", "StoreStandIns", "TestSupport",
                .product(name: "ArgumentParser", package: "swift-argument-parser"), .product(name: "GRDB", package: "GRDB.swift"),
                .product(name: "NIOCore", package: "swift-nio", condition: server),
                .product(name: "NIOEmbedded", package: "swift-nio", condition: server),
            ],
            path: "Tests/HapaxServerTests",
            exclude: ["day_bounds.py", "analysis.py", "daily_report.py"],
            resources: [.copy("Golden")],
            swiftSettings: strict
        ),
        .testTarget(
            name: "BrowserTests",
            dependencies: ["HapaxModel", "TestSupport", "hapax-server", .product(name: "GRDB", package: "GRDB.swift")],
            path: "Tests/BrowserTests",
            swiftSettings: strict
        ),
        .testTarget(
            name: "IntegrationTests",
            dependencies: [
                "HapaxClient", "HapaxServer", "HapaxModel", "StoreStandIns", "TestSupport", "dpkg-events", "hapax", "hapax-server",
                "hapax-test-worker",
                "orders-service",
                .product(name: "GRDB", package: "GRDB.swift"), .product(name: "Logging", package: "swift-log"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle", condition: server),
            ],
            path: "Tests/IntegrationTests",
            swiftSettings: strict
        ),

        // Examples.
        .executableTarget(
            name: "dpkg-events", dependencies: ["HapaxModel"], path: "Examples/dpkg-events", swiftSettings: strict),
        .executableTarget(
            name: "orders-service",
            dependencies: [
                "HapaxClient", "HapaxClientService", "HapaxModel",
                .product(name: "Hummingbird", package: "hummingbird", condition: server),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle", condition: service),
                .product(name: "UnixSignals", package: "swift-service-lifecycle", condition: service),
            ],
            path: "Examples/orders-service", exclude: ["Dockerfile", "compose.yml"],
            swiftSettings: strict
        ),

        // Benchmarks.
        .executableTarget(
            name: "hapax-bench",
            dependencies: [
                "HapaxClient", "HapaxServer", "HapaxModel", "TestSupport", .product(name: "GRDBSQLite", package: "GRDB.swift"),
                .product(name: "Logging", package: "swift-log", condition: server),
                .product(name: "NIOCore", package: "swift-nio", condition: server),
                .product(name: "NIOPosix", package: "swift-nio", condition: server),
                .product(name: "NIOSSL", package: "swift-nio-ssl", condition: server),
            ],
            path: "Benchmarks/hapax-bench",
            swiftSettings: strict
        ),
    ]
)

// For `make docs` alone: nobody who depends on Hapax resolves it.
if Context.environment["HAPAX_DOCS"] == "1" {
    package.dependencies.append(.package(url: "https://github.com/swiftlang/swift-docc-plugin.git", from: "1.4.5"))
}

#if os(macOS)
// The server runs on Linux: what it is built on needs macOS 14. On a Mac the package is the client, for Mac and phone.
let client: Set = [
    "CZlib", "CCrypto", "HapaxModel", "HapaxSQLite", "CCurl", "HapaxClient", "HapaxClientService", "HapaxClientUI", "HapaxTestKit", "hapax",
]
package.targets.removeAll { !client.contains($0.name) }
package.products.removeAll { !client.contains($0.name) }
#endif

#if os(Linux)
// The adapters to Apple's frameworks, compiled and driven where these do not exist: the same files, by links, with a stub in the frameworks'
// place. The stub is no module of theirs by name, so that nothing else that asks `canImport` takes it for one.
package.targets += [
    .target(name: "AppleStubs", dependencies: ["HapaxModel"], path: "Tests/AppleStubs", swiftSettings: strict),
    .testTarget(
        name: "HapaxAppleTests",
        dependencies: [
            "AppleStubs", "HapaxClient", "HapaxModel", "HapaxTestKit", "TestSupport", .product(name: "GRDB", package: "GRDB.swift"),
        ],
        path: "Tests/HapaxAppleTests",
        swiftSettings: strict + [.define("HAPAX_APPLE_STUBS")]
    ),
]
#endif
