import HTTPTypes
import Hummingbird

/// The page: our own files, compiled in; the scripts are sent as one. It holds no data; its script fetches them with the reader's key.
@available(macOS 14, *)
enum PageRoute {
    /// Path, content type, and content.
    static let files: [(path: String, type: String, bytes: [UInt8])] = [
        ("/", "text/html; charset=utf-8", PackageResources.page_html), ("/page.css", "text/css; charset=utf-8", PackageResources.page_css),
        ("/page.js", "text/javascript; charset=utf-8", script),
    ]

    /// In this order, because each script uses those before it.
    private static let script = [
        PackageResources.page_js, PackageResources.rows_js, PackageResources.live_js, PackageResources.report_js,
        PackageResources.analysis_js, PackageResources.find_js,
        PackageResources.trust_js, PackageResources.storage_js, PackageResources.sections_js,
    ].reduce([], +)

    /// Loads nothing from other origins and nothing inline, and no other page may frame it (https://www.w3.org/TR/CSP3/).
    private static let policy =
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; frame-ancestors 'none'; "
        + "base-uri 'none'; form-action 'none'"

    static func response(_ type: String, _ bytes: [UInt8]) -> Response {
        var response = Routes.response(type, bytes)
        for (name, value) in [
            ("Content-Security-Policy", policy), ("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", "no-referrer"),
            ("Cache-Control", "no-cache"), ("Cross-Origin-Resource-Policy", "same-origin"),
        ] {
            if let name = HTTPField.Name(name) { response.headers[name] = value }
        }
        return response
    }
}
