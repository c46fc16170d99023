"""Commands for Hiera trees and encrypted values."""
